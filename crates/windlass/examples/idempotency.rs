//! Idempotency: a request that is sent twice makes one job, and one that differs under the same key is refused.

use serde::{Deserialize, Serialize};
use windlass::{Engine, HandlerResult, Work, job};

#[derive(Serialize, Deserialize)]
struct Ship {
    order: u32,
}

impl Work for Ship {
    const KIND: &str = "ship";
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;

    let first = engine.enqueue(job(Ship { order: 1 }).key("order-1")).await?;
    let again = engine.enqueue(job(Ship { order: 1 }).key("order-1")).await?;
    assert_eq!(first.id, again.id);
    println!("the same job: {}", again.idempotent_hit);

    let other = engine.enqueue(job(Ship { order: 2 }).key("order-1")).await;
    let why = other.expect_err("it differs").to_string();
    println!("refused: {}", why.replace(&first.id.to_string(), "the first job"));

    // The same key in another scope is another key.
    let scoped = job(Ship { order: 2 }).key("order-1").key_scope("returns");
    println!("another job: {}", engine.enqueue(scoped).await?.id != first.id);
    Ok(())
}
