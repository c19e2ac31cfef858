//! Enqueue in your own transaction: the job is there if and only if your rows are. On PostgreSQL, whose address is
//! the first argument.

use serde::{Deserialize, Serialize};
use windlass::{Engine, HandlerResult, Work, tokio_postgres};

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i32,
}

impl Work for Confirm {
    const KIND: &str = "confirm";
}

async fn confirm(job: Confirm) -> HandlerResult<String> {
    Ok(format!("order {} is confirmed", job.order))
}

#[tokio::main]
async fn main() -> HandlerResult {
    let url = std::env::args().nth(1).ok_or("usage: transaction_postgres postgres://…")?;
    let engine = Engine::open(&url).await?;
    let worker = engine.worker().handle(confirm).start().await?;
    let (mut shop, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    shop.batch_execute("CREATE TEMP TABLE orders (id serial PRIMARY KEY, item text NOT NULL)")
        .await?;

    // The order and the job that confirms it: both, or neither.
    let transaction = shop.transaction().await?;
    let insert = "INSERT INTO orders (item) VALUES ('anchor') RETURNING id";
    let order = transaction.query_one(insert, &[]).await?.get(0);
    let kept = engine.enqueue_in_postgres(&transaction, Confirm { order }).await?;
    transaction.commit().await?;
    engine.wake();
    println!("{}", engine.wait(kept).await?.result::<String>()?);

    let transaction = shop.transaction().await?;
    let dropped = engine.enqueue_in_postgres(&transaction, Confirm { order: 99 }).await?;
    transaction.rollback().await?;
    println!("rolled back: {}", engine.job(dropped).await.is_err());

    worker.shutdown().await?;
    Ok(())
}
