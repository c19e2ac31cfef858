//! A worker comes to its end in good order, and a crash costs nothing but time.

use std::time::Duration;

use windlass::{HandlerResult, State, job, testing};

use crate::common::{Ahead, Do, act, claim_ahead, path};

#[tokio::test(start_paused = true)]
async fn what_runs_may_finish_within_the_grace_period() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).grace(Duration::from_secs(10)).start().await?;
    let short = engine.enqueue(Do::SleepMs(5_000)).await?.id;
    let long = engine.enqueue(Do::SleepMs(60_000)).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    worker.shutdown().await?;
    assert_eq!(engine.job(short).await?.state, State::Succeeded);
    let long = engine.job(long).await?;
    assert_eq!((long.state, long.interruptions), (State::Interrupted, 0), "it is not counted");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn draining_waits_as_long_as_it_takes() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).grace(Duration::from_secs(1)).start().await?;
    let id = engine.enqueue(Do::SleepMs(600_000)).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let late = engine.enqueue(Do::succeed());
    worker.drain().await?;
    assert_eq!(engine.job(id).await?.state, State::Succeeded);
    let late = late.await?.id;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.job(late).await?.state, State::Queued, "nobody works any more");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_has_not_started_goes_back_to_its_queue() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(2).prefetch(50).grace(Duration::from_secs(600));
    let worker = worker.handle(act).start().await?;
    let Ahead { long, waiting } = claim_ahead(&engine, 60_000).await?;
    let ending = tokio::spawn(worker.shutdown());
    tokio::time::sleep(Duration::from_millis(100)).await;
    for id in &waiting {
        assert_eq!(path(&engine, *id).await, "queued dispatched queued", "it goes back at once");
    }
    for id in &long {
        assert_eq!(engine.job(*id).await?.state, State::Running, "it has its grace period");
    }
    ending.await??;
    for id in &long {
        assert_eq!(engine.job(*id).await?.state, State::Succeeded);
    }
    let next = engine.worker().handle(act).start().await?;
    for id in waiting {
        let ended = engine.wait(id).await?;
        assert!(ended.is_success());
        assert_eq!(ended.job.interruptions, 0, "it is not counted");
    }
    next.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_worker_that_crashed_go_on_elsewhere() -> HandlerResult {
    let engine = testing::engine()?;
    let crashing = engine.worker().handle(act).lease(Duration::from_secs(20)).start().await?;
    let id = engine.enqueue(Do::SleepMs(60_000)).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    crashing.kill();
    let other = engine.worker().handle(act).start().await?;
    let ended = engine.wait(id).await?.job;
    assert_eq!((ended.state, ended.attempt, ended.interruptions), (State::Succeeded, 1, 1));
    let expected = "queued dispatched running interrupted dispatched running succeeded";
    assert_eq!(path(&engine, id).await, expected);
    other.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_long_job_keeps_its_lease_by_renewals() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).lease(Duration::from_secs(10)).start().await?;
    let id = engine.enqueue(job(Do::SleepMs(600_000))).await?.id;
    let ended = engine.wait(id).await?.job;
    assert_eq!((ended.state, ended.interruptions), (State::Succeeded, 0));
    assert!(ended.lease_count > 500, "{} renewals", ended.lease_count);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn dropping_a_worker_shuts_it_down() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(Do::SleepMs(1_000)).await?.id;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(worker);
    assert!(engine.wait(id).await?.is_success());
    let late = engine.enqueue(Do::succeed()).await?.id;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(engine.job(late).await?.state, State::Queued);
    Ok(())
}
