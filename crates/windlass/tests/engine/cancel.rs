//! Cancelling a job: at once where nothing runs, politely where something does.

use std::time::Duration;

use windlass::{HandlerResult, Scope, State, job, testing};
use windlass_kernel::{Fact, ops::Cancel};

use crate::common::{Do, act};

#[tokio::test(start_paused = true)]
async fn a_running_handler_hears_of_it_and_cleans_up() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(Do::UntilStopped).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let asked_at = tokio::time::Instant::now();
    assert_eq!(engine.cancel(id).await?, State::Running);
    let ended = engine.wait(id).await?;
    assert_eq!(ended.job.state, State::Cancelled);
    assert!(asked_at.elapsed() < Duration::from_millis(100), "{:?}", asked_at.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_worker_elsewhere_hears_of_it_with_its_renewal() -> HandlerResult {
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let here =
        windlass::Engine::on(store.clone(), &testing::config(clock.clone(), testing::seeded(1)));
    let there = windlass::Engine::on(store, &testing::config(clock, testing::seeded(2)));
    let worker = there.worker().handle(act).start().await?;
    let id = here.enqueue(Do::UntilStopped).await?.id;
    tokio::time::sleep(Duration::from_secs(2)).await;
    here.cancel(id).await?;
    let asked_at = tokio::time::Instant::now();
    assert_eq!(here.wait(id).await?.job.state, State::Cancelled);
    assert!(asked_at.elapsed() < Duration::from_secs(4), "{:?}", asked_at.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_does_not_listen_is_cancelled_after_its_grace() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(1).handle(act).start().await?;
    let id = engine.enqueue(Do::Hang).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    engine.cancel_with(id, Duration::from_secs(7), Some("enough".to_owned())).await?;
    let ended = engine.wait(id).await?.job;
    assert_eq!(ended.state, State::Cancelled);
    // Its slot is free for the next.
    let next = engine.enqueue(Do::succeed()).await?.id;
    assert!(engine.wait(next).await?.is_success());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_does_not_run_is_cancelled_at_once() -> HandlerResult {
    let engine = testing::engine()?;
    let queued = engine.enqueue(Do::succeed()).await?.id;
    assert_eq!(engine.cancel(queued).await?, State::Cancelled);
    let scheduled = engine.enqueue(job(Do::succeed()).after(Duration::from_secs(60))).await?.id;
    assert_eq!(engine.cancel(scheduled).await?, State::Cancelled);
    let worker = engine.worker().handle(act).start().await?;
    let hour = Duration::from_secs(3600);
    let retrying = engine.enqueue(job(Do::Fail).backoff(hour, hour)).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(engine.job(retrying).await?.state, State::RetryScheduled);
    assert_eq!(engine.cancel(retrying).await?, State::Cancelled);
    let forced = engine.enqueue(Do::Hang).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(engine.cancel_with(forced, Duration::ZERO, None).await?, State::Cancelled);
    let refused = engine.cancel(forced).await.unwrap_err();
    assert!(refused.to_string().contains("cancelled"), "{refused}");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_children_of_a_cancelled_job_are_cancelled_too() -> HandlerResult {
    let engine = testing::engine()?;
    let parent = engine.enqueue(Do::succeed()).await?.id;
    let child = engine.enqueue(job(Do::succeed()).parent(parent)).await?.id;
    let other = engine.enqueue(Do::succeed()).await?.id;
    engine.cancel(parent).await?;
    assert_eq!(engine.wait(child).await?.job.state, State::Cancelled);
    assert_eq!(engine.job(other).await?.state, State::Queued);
    Ok(())
}

/// Those that were asked and go on must not stand in the way of those that were not.
#[tokio::test(start_paused = true)]
async fn running_children_are_all_asked_to_stop_however_many_there_are() -> HandlerResult {
    let engine = testing::engine()?;
    let parent = engine.enqueue(job(Do::succeed()).after(Duration::from_secs(3600))).await?.id;
    let requests: Vec<_> = (0..2_500).map(|_| job(Do::Hang).parent(parent)).collect();
    let mut children = Vec::new();
    for enqueued in engine.enqueue_all(requests).await {
        children.push(enqueued?.id);
    }
    let worker = engine.worker().concurrency(children.len()).handle(act).start().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    engine.cancel(parent).await?;
    tokio::time::sleep(Cancel::GRACE_DEFAULT / 3).await;
    let mut not_asked = 0;
    for id in children {
        let child = engine.job(id).await?;
        assert_eq!(child.state, State::Running);
        not_asked += u32::from(child.cancel.is_none());
    }
    assert_eq!(not_asked, 0);
    assert_eq!(engine.own_store().unwrap().follow_ups(10).await?, [], "it is struck off");
    worker.kill();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_gives_no_reason_stopped_for_the_one_it_was_given() -> HandlerResult {
    let engine = testing::engine()?;
    let stops = async |_: Do, context: windlass::Context| -> HandlerResult<windlass::Outcome> {
        context.stopped().await;
        Ok(windlass::Outcome::cancelled(None))
    };
    let worker = engine.worker().handle(stops).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    engine.cancel_with(id, Duration::from_secs(7), Some("enough".to_owned())).await?;
    engine.wait(id).await?;
    let last = engine.store().events(&Scope::Every, id).await?.pop().unwrap();
    let Fact::Cancelled { reason, .. } = last.fact else { panic!("{last:?}") };
    assert_eq!(reason.as_deref(), Some("enough"));
    worker.shutdown().await?;
    Ok(())
}
