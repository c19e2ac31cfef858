//! Retries and dead letters: what passes is tried again, what does not is kept for a person, who may send it once
//! more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use windlass::{Context, Engine, Failure, HandlerResult, State, Work, job};

#[derive(Serialize, Deserialize)]
struct Charge {
    card: String,
}

impl Work for Charge {
    const KIND: &str = "charge";
}

/// A bank that is away for two calls, and does not know every card.
#[derive(Default)]
struct Bank {
    calls: AtomicU32,
    knows_all_cards: AtomicBool,
}

async fn charge(order: Charge, context: Context, bank: Arc<Bank>) -> HandlerResult<u32> {
    if bank.calls.fetch_add(1, Ordering::SeqCst) < 2 {
        // Any error is tried again, a little later each time.
        return Err("the bank does not answer".into());
    }
    if order.card == "unknown" && !bank.knows_all_cards.load(Ordering::SeqCst) {
        // A failure says more about itself: this one is not tried again.
        return Err(Failure::permanent("CARD_UNKNOWN", "the bank does not know this card").into());
    }
    Ok(context.attempt())
}

#[tokio::main]
async fn main() -> HandlerResult {
    let engine = Engine::open("sqlite::memory:").await?;
    let bank = Arc::new(Bank::default());
    let worker = engine.worker().state(bank.clone()).handle(charge).start().await?;
    let soon = |card: &str| {
        let quickly = Duration::from_millis(10);
        job(Charge { card: card.to_owned() }).backoff(quickly, quickly)
    };

    let paid = engine.enqueue(soon("4711")).await?;
    let attempt: u32 = engine.wait(paid.id).await?.result()?;
    println!("charged in attempt {attempt}");

    let dead = engine.enqueue(soon("unknown")).await?;
    let ended = engine.wait(dead.id).await?;
    assert_eq!(ended.job.state, State::Failed);
    let letter = ended.job.dlq_id.expect("what has failed has a letter");
    println!("dead letter: {}", ended.job.error.expect("it says why"));

    // A person has called the bank.
    bank.knows_all_cards.store(true, Ordering::SeqCst);
    let again = engine.requeue(letter).await?;
    println!("requeued: {}", engine.wait(again.id).await?.job.state);

    worker.shutdown().await?;
    Ok(())
}
