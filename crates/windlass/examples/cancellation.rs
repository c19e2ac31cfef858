//! Cancellation: a handler that runs is asked to stop, cleans up, and says so.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{sync::Notify, time::sleep};
use windlass::{Context, Engine, HandlerResult, Outcome, Work};

#[derive(Serialize, Deserialize)]
struct Export;

impl Work for Export {
    const KIND: &str = "export";
}

async fn export(_: Export, context: Context, began: Arc<Notify>) -> HandlerResult<Outcome> {
    began.notify_one();
    loop {
        tokio::select! {
            why = context.stopped() => {
                println!("told to stop: {why:?}");
                // Here the half-written file would be removed.
                return Ok(Outcome::cancelled("stopped half-way".to_owned()));
            }
            () = sleep(Duration::from_millis(10)) => {} // One more row.
        }
    }
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;
    let began = Arc::new(Notify::new());
    let worker = engine.worker().state(began.clone()).handle(export).start().await?;

    let job = engine.enqueue(Export).await?;
    began.notified().await;
    engine.cancel(job.id).await?;
    println!("{}", engine.wait(job.id).await?.job.state);

    worker.shutdown().await?;
    Ok(())
}
