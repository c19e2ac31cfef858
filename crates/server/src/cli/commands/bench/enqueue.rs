//! `enqueue`: many callers, each with one job at a time, as requests come to a server.

use std::{sync::Arc, time::Instant};

use tokio::task::JoinSet;

use super::{
    error::Error,
    load::{Load, gather},
    noop::Noop,
    times::Times,
};

/// The times are of single calls, from the call to the durable answer.
pub(super) async fn run(load: &Arc<Load>, callers: u64) -> Result<Times, Error> {
    let tasks: JoinSet<_> = (0..callers).map(|_| call(load.clone())).collect();
    gather(tasks).await
}

async fn call(load: Arc<Load>) -> Result<Times, Error> {
    let mut times = Times::default();
    while load.take(1) == 1 {
        let start = Instant::now();
        load.handle.submit(Noop::write(load.noop.enqueue())).await?;
        times.record(start.elapsed(), 1);
        load.progress.add(1)?;
    }
    Ok(times)
}
