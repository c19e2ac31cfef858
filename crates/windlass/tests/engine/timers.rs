//! Time alone moves jobs, and never too early.

use std::time::Duration;

use windlass::{
    Class, Context, Failure, HandlerResult, Scope, State, Timestamp, job,
    testing::{self, BEGINS_AT},
};

use crate::common::{Do, act, path, steady_engine};

const HOUR: Duration = Duration::from_secs(3600);

fn after_start(wait: Duration) -> Timestamp {
    BEGINS_AT.parse::<Timestamp>().unwrap().plus(wait)
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_due_at_once_does_not_wait_for_a_poll() -> HandlerResult {
    let engine = steady_engine();
    let worker = engine.worker().poll(Duration::from_secs(3_600)).handle(act).start().await?;
    for wait in [0, 1, 3, 10] {
        let wait = Duration::from_millis(wait);
        let began = tokio::time::Instant::now();
        let id = engine.enqueue(job(Do::FailTimes(1)).backoff(wait, wait)).await?.id;
        assert!(engine.wait(id).await?.is_success());
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_scheduled_job_starts_when_it_is_due() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let later = engine.enqueue(job(Do::succeed()).after(HOUR)).await?;
    assert_eq!(later.state, State::Scheduled);
    let at = engine.enqueue(job(Do::succeed()).at(after_start(HOUR * 2))).await?;
    let first = engine.wait(later.id).await?.job.started_at.unwrap();
    let second = engine.wait(at.id).await?.job.started_at.unwrap();
    let late = first.since(after_start(HOUR));
    assert!(first >= after_start(HOUR) && late < Duration::from_millis(20), "late by {late:?}");
    let late = second.since(after_start(HOUR * 2));
    assert!(second >= after_start(HOUR * 2) && late < Duration::from_millis(20), "{late:?}");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_retry_starts_when_it_is_due() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let request = job(Do::FailTimes(1)).backoff(HOUR, HOUR);
    let id = engine.enqueue(request).await?.id;
    let ended = engine.wait(id).await?.job;
    let took = ended.finished_at.unwrap().since(ended.spec.created_at);
    assert!(took >= HOUR && took < HOUR + Duration::from_millis(330), "it took {took:?}");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_takes_too_long_times_out_whatever_it_does() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let request = job(Do::Hang).timeout(Duration::from_secs(5)).max_retries(1);
    let id = engine.enqueue(request).await?.id;
    let ended = engine.wait(id).await?.job;
    assert_eq!((ended.state, ended.attempt), (State::Failed, 2));
    assert_eq!(ended.error.unwrap().code, "TASK_TIMEOUT");
    let expected = "queued dispatched running retry_scheduled dispatched running dlq_pending \
                    dlq_recorded failed";
    assert_eq!(path(&engine, id).await, expected);
    let took = ended.finished_at.unwrap().since(ended.spec.created_at);
    assert!(took >= Duration::from_secs(11) && took < Duration::from_millis(11_400), "{took:?}");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_was_taken_by_a_hanging_handler_is_free_after_the_time_out() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(1).handle(act).start().await?;
    let hangs = job(Do::Hang).timeout(Duration::from_secs(5)).max_retries(0);
    engine.enqueue(hangs).await?;
    let next = engine.enqueue(Do::succeed()).await?.id;
    assert!(engine.wait(next).await?.is_success());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn silence_times_out_and_heartbeats_keep_a_job_alive() -> HandlerResult {
    let engine = testing::engine()?;
    let beats = async |_: Do, context: Context| -> HandlerResult {
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(2)).await;
            context.heartbeat().await?;
        }
        if context.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let worker = engine.worker().handle(beats).start().await?;
    let request = job(Do::succeed()).heartbeat_timeout(Duration::from_secs(3));
    let id = engine.enqueue(request).await?.id;
    let ended = engine.wait(id).await?.job;
    assert_eq!((ended.state, ended.attempt), (State::Succeeded, 2));
    let events = engine.store().events(&Scope::Every, id).await?;
    let failed = events.iter().find(|event| event.to == State::RetryScheduled).unwrap();
    assert_eq!(failed.cause.as_str(), "heartbeat_timeout");
    let silent = failed.at.since(ended.spec.created_at);
    assert!(silent >= Duration::from_secs(23) && silent < Duration::from_millis(23_100));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_starts_too_late_is_cancelled() -> HandlerResult {
    let engine = testing::engine()?;
    let id = engine.enqueue(job(Do::succeed()).schedule_to_start(HOUR)).await?.id;
    let ended = engine.wait(id).await?.job;
    assert_eq!(ended.state, State::Cancelled);
    assert_eq!(ended.error.unwrap().code, "SCHEDULE_TO_START_TIMEOUT");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_job_wherever_it_is() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let running = engine.enqueue(job(Do::Hang).deadline(after_start(HOUR))).await?.id;
    let retrying = job(Do::Fail).backoff(HOUR * 2, HOUR * 2).deadline(after_start(HOUR));
    let retrying = engine.enqueue(retrying).await?.id;
    let running = engine.wait(running).await?.job;
    assert_eq!(
        (running.state, running.error.unwrap().code.as_str()),
        (State::Failed, "DEADLINE_EXCEEDED")
    );
    let retrying = engine.wait(retrying).await?.job;
    assert_eq!(retrying.state, State::Cancelled);
    assert_eq!(retrying.error.unwrap().code, "DEADLINE_EXCEEDED");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_failure_of_a_time_out_may_pass() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let request = job(Do::Hang).timeout(Duration::from_secs(1)).max_retries(0);
    let id = engine.enqueue(request).await?.id;
    let failure: Failure = engine.wait(id).await?.job.error.unwrap();
    assert_eq!((failure.class, failure.retryable), (Class::Transient, true));
    worker.shutdown().await?;
    Ok(())
}
