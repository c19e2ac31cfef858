//! Statements that are sent together (pipelined): one round trip to the server for all of them.
//!
//! The server runs them in the order they are given. If one fails inside a transaction, those after it do
//! nothing, a `COMMIT` among them included: it rolls back.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::{Error, Row, types::ToSql};

use crate::postgres::{Failure, PgResult};

/// A statement with its values.
pub(crate) struct Ask {
    sql: &'static str,
    params: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Ask {
    /// A statement without values.
    pub(crate) fn new(sql: &'static str) -> Self {
        Self { sql, params: Vec::new() }
    }

    /// Another statement, which begins with the same values.
    pub(crate) fn instead(mut self, sql: &'static str) -> Self {
        self.sql = sql;
        self
    }

    /// The next value of the statement.
    pub(crate) fn with(mut self, value: impl ToSql + Sync + Send + 'static) -> Self {
        self.params.push(Box::new(value));
        self
    }
}

/// Has all of them run, and gives back the rows of each, or the first error.
pub(crate) async fn run(client: &ClientWrapper, asks: &[Ask]) -> Result<Vec<Vec<Row>>, Error> {
    #[cfg(feature = "faults")]
    if crate::crash::is_near() {
        return one_by_one(client, asks).await;
    }
    // The first time on a connection each is prepared, which takes a trip of its own.
    let mut statements = Vec::with_capacity(asks.len());
    for ask in asks {
        statements.push(client.prepare_cached(ask.sql).await?);
    }
    let params: Vec<Vec<&(dyn ToSql + Sync)>> = asks
        .iter()
        .map(|ask| ask.params.iter().map(|it| &**it as &(dyn ToSql + Sync)).collect())
        .collect();
    let queries = statements.iter().zip(&params);
    let queries = queries.map(|(statement, params)| client.query(statement, params));
    in_order(queries.collect()).await.into_iter().collect()
}

/// The same, but each is sent when the one before it was answered: if this process is to die after one of them, the
/// server has run that one and none of those that follow.
#[cfg(feature = "faults")]
async fn one_by_one(client: &ClientWrapper, asks: &[Ask]) -> Result<Vec<Vec<Row>>, Error> {
    let mut found = Vec::with_capacity(asks.len());
    for Ask { sql, params } in asks {
        let statement = client.prepare_cached(sql).await?;
        let params: Vec<_> = params.iter().map(|it| &**it as &(dyn ToSql + Sync)).collect();
        found.push(client.query(&statement, &params).await?);
        crate::crash::statement_ran();
    }
    Ok(found)
}

/// One statement, alone.
pub(crate) async fn run_one(client: &ClientWrapper, ask: Ask) -> Result<Vec<Row>, Error> {
    Ok(run(client, &[ask]).await?.remove(0))
}

/// The row of a statement that every store has a row for. If there is none, `lacks` says what was taken away.
pub(crate) async fn run_for_row(client: &ClientWrapper, ask: Ask, lacks: &str) -> PgResult<Row> {
    run_one(client, ask).await?.pop().ok_or_else(|| Failure::damaged(lacks))
}

/// Polls all of them in their order until each has ended. A query is sent when it is first polled.
async fn in_order<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut ended: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut all = true;
        for (future, output) in waiting.iter_mut().zip(&mut ended) {
            if output.is_some() {
                continue;
            }
            match future.as_mut().poll(context) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => all = false,
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    ended.into_iter().map(|output| output.expect("all have ended")).collect()
}
