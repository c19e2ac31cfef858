//! Testing your jobs: the whole engine in memory, under a clock that skips forward. An hour takes no time.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use windlass::{
    Context, HandlerResult, Scope, State, Work,
    faults::{Fault, Faults},
    job, testing,
};

#[derive(Serialize, Deserialize)]
struct Remind;

impl Work for Remind {
    const KIND: &str = "remind";
}

async fn remind(_: Remind, context: Context) -> HandlerResult<u32> {
    Ok(context.attempt())
}

// In a test: #[tokio::test(start_paused = true)]
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> HandlerResult {
    #[expect(clippy::disallowed_methods, reason = "to tell how long it really takes")]
    let real = Instant::now();
    let (engine, faults) = (testing::engine()?, Faults::new());
    faults.inject(Fault::Timeout, 1);
    faults.inject(Fault::TransientError, 1);
    faults.inject(Fault::ProcessRestartInterrupt, 1);
    let worker = engine.worker().layer(faults.clone()).handle(remind).start().await?;

    let hour = Duration::from_secs(3600);
    let reminder = engine.enqueue(job(Remind).after(hour).timeout(hour)).await?;
    assert_eq!(reminder.state, State::Scheduled);
    let ended = engine.wait(reminder.id).await?;
    println!("{} in attempt {}", ended.job.state, ended.result::<u32>()?);

    let events = engine.store().events(&Scope::Every, reminder.id).await?;
    let causes: Vec<&str> = events.iter().map(|event| event.cause.as_str()).collect();
    println!("{}", causes.join(" → "));
    assert!(faults.is_spent() && real.elapsed() < Duration::from_secs(60));
    worker.shutdown().await?;
    Ok(())
}
