//! Graceful shutdown: what runs may finish within a grace period; what is longer goes on at the next start, and
//! nothing is counted against it.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, time::sleep};
use windlass::{Context, Engine, HandlerResult, Work};

#[derive(Serialize, Deserialize)]
struct Render {
    name: String,
    ms: u64,
}

impl Work for Render {
    const KIND: &str = "render";
}

async fn render(job: Render, context: Context, began: Arc<Semaphore>) -> HandlerResult {
    began.add_permits(1);
    // The second time the long one finds its work nearly done.
    let ms = if context.epoch().get() > 1 { 1 } else { job.ms };
    sleep(Duration::from_millis(ms)).await;
    Ok(())
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;
    let began = Arc::new(Semaphore::new(0));
    let worker = || engine.worker().state(began.clone()).grace(Duration::from_millis(500));

    // A service would write: worker.run_until(windlass::shutdown::signal()).await
    let first = worker().handle(render).start().await?;
    let short = engine.enqueue(Render { name: "short".to_owned(), ms: 200 }).await?;
    let long = engine.enqueue(Render { name: "long".to_owned(), ms: 60_000 }).await?;
    let _both = began.acquire_many(2).await?;
    first.shutdown().await?;
    println!("short: {}", engine.job(short.id).await?.state);
    println!("long: {}", engine.job(long.id).await?.state);

    let second = worker().handle(render).start().await?;
    let ended = engine.wait(long.id).await?.job;
    println!("long: {}, {} interruptions counted", ended.state, ended.interruptions);
    second.shutdown().await?;
    Ok(())
}
