//! Faults on purpose do what they say, and the engine gets over them.

use std::{sync::Arc, time::Duration};

use windlass::{
    Context, HandlerResult, Scope, State,
    faults::{Fault, Faults},
    job, testing,
};

use crate::common::{Counter, Do, path};

async fn count(_: Do, context: Context, counter: Arc<Counter>) -> HandlerResult<u32> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    counter.add();
    Ok(context.attempt())
}

/// Runs one job with one fault, and gives back its path, how often the handler ran, and why it did not end at once.
async fn with(fault: Fault) -> HandlerResult<(String, u32, Option<&'static str>)> {
    let (engine, faults) = (testing::engine()?, Faults::new());
    faults.inject_into("do", fault, 1);
    let counter = Arc::new(Counter::default());
    let worker = engine.worker().state(counter.clone()).layer(faults.clone());
    let worker = worker.handle(count).start().await?;
    let id = engine.enqueue(job(Do::succeed()).timeout(Duration::from_secs(60))).await?.id;
    let ended = engine.wait(id).await?;
    assert_eq!(ended.job.state, State::Succeeded);
    assert!(faults.is_spent());
    worker.shutdown().await?;
    let events = engine.store().events(&Scope::Every, id).await?;
    let set_back = [State::RetryScheduled, State::Interrupted];
    let set_back = events.iter().find(|event| set_back.contains(&event.to));
    Ok((path(&engine, id).await, counter.get(), set_back.map(|event| event.cause.as_str())))
}

#[tokio::test(start_paused = true)]
async fn timeout() -> HandlerResult {
    let (path, ran, why) = with(Fault::Timeout).await?;
    assert_eq!(path, "queued dispatched running retry_scheduled dispatched running succeeded");
    assert_eq!((ran, why), (1, Some("timeout")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn transient_error() -> HandlerResult {
    let (path, ran, why) = with(Fault::TransientError).await?;
    assert_eq!(path, "queued dispatched running retry_scheduled dispatched running succeeded");
    assert_eq!((ran, why), (1, Some("retryable_error")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn process_restart_interrupt() -> HandlerResult {
    let (path, ran, why) = with(Fault::ProcessRestartInterrupt).await?;
    assert_eq!(path, "queued dispatched running interrupted dispatched running succeeded");
    assert_eq!((ran, why), (1, Some("process_restart")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_lets_the_handler_run_twice_and_counts_once() -> HandlerResult {
    let (path, ran, _) = with(Fault::LostLease).await?;
    assert_eq!(path, "queued dispatched running interrupted dispatched running succeeded");
    assert_eq!(ran, 2, "at least once is what is promised for effects outside");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_delivery_is_one_execution() -> HandlerResult {
    let (path, ran, _) = with(Fault::DuplicateDelivery).await?;
    assert_eq!(path, "queued dispatched running succeeded");
    assert_eq!(ran, 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_ahead_rings_what_is_due_and_one_that_jumps_back_stands_still()
-> HandlerResult {
    let faults = Faults::new();
    let clock = faults.clock(testing::clock());
    let store = testing::store(clock.clone())?;
    let engine = windlass::Engine::on(store, &testing::config(clock, testing::seeded(1)));
    let counter = Arc::new(Counter::default());
    let worker = engine.worker().state(counter).handle(count).start().await?;
    let day = Duration::from_secs(86_400);
    let id = engine.enqueue(job(Do::succeed()).after(day)).await?.id;
    faults.jump(day);
    let began = tokio::time::Instant::now();
    assert!(engine.wait(id).await?.is_success());
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    faults.jump_back(day * 2);
    let id = engine.enqueue(Do::succeed()).await?.id;
    assert!(engine.wait(id).await?.is_success(), "the store's clock never goes back");
    worker.shutdown().await?;
    Ok(())
}

#[test]
fn faults_are_known_by_their_names() {
    for fault in Fault::ALL {
        assert_eq!(Fault::parse(fault.as_str()), Some(fault));
    }
    assert_eq!(Fault::parse("earthquake"), None);
}
