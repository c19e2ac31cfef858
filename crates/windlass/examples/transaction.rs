//! Enqueue in your own transaction: the job is there if and only if your rows are. On SQLite.

use serde::{Deserialize, Serialize};
use windlass::{Engine, HandlerResult, Work, rusqlite::TransactionBehavior};

#[derive(Serialize, Deserialize)]
struct Confirm {
    order: i64,
}

impl Work for Confirm {
    const KIND: &str = "confirm";
}

async fn confirm(job: Confirm) -> HandlerResult<String> {
    Ok(format!("order {} is confirmed", job.order))
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;
    let worker = engine.worker().handle(confirm).start().await?;
    let mut shop = engine.sqlite().expect("it is SQLite").connect()?;
    shop.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")?;

    // The order and the job that confirms it: both, or neither.
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute("INSERT INTO orders (item) VALUES ('anchor')", [])?;
    let order = transaction.last_insert_rowid();
    let kept = engine.enqueue_in(&transaction, Confirm { order })?;
    transaction.commit()?;
    engine.wake();
    println!("{}", engine.wait(kept).await?.result::<String>()?);

    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let dropped = engine.enqueue_in(&transaction, Confirm { order: 99 })?;
    transaction.rollback()?;
    println!("rolled back: {}", engine.job(dropped).await.is_err());

    worker.shutdown().await?;
    Ok(())
}
