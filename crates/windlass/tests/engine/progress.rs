//! A handler says how far it has come, and anyone can read it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass::{Context, Error, HandlerResult, Scope, State, job, testing};

use crate::common::Do;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Rows {
    done: u64,
    of: u64,
}

const SECOND: Duration = Duration::from_secs(1);

/// Works for ten seconds, and says so each second.
async fn count_rows(_: Do, context: Context) -> HandlerResult {
    for done in 1..=10 {
        tokio::time::sleep(SECOND).await;
        context.progress(&Rows { done, of: 10 }).await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_says_can_be_read_while_it_runs_and_afterwards() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(count_rows).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    assert_eq!(engine.progress(id).await?, None, "nothing was said");
    tokio::time::sleep(SECOND * 4 + SECOND / 2).await;
    let running = engine.job(id).await?;
    let said = engine.progress(id).await?.unwrap();
    assert_eq!(said.get::<Rows>()?, Rows { done: 4, of: 10 });
    assert_eq!((running.state, said.epoch), (State::Running, running.epoch));
    let after = said.at.since(running.started_at.unwrap());
    assert!(after >= SECOND * 4 && after < SECOND * 4 + SECOND / 10, "{after:?}");
    assert!(matches!(said.get::<Vec<u8>>(), Err(Error::Json { .. })), "it is of another type");

    assert!(engine.wait(id).await?.is_success());
    assert_eq!(engine.progress(id).await?.unwrap().get::<Rows>()?.done, 10);
    let events = engine.store().events(&Scope::Every, id).await?;
    assert_eq!(events.len(), 4, "it is not history");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn progress_is_a_sign_of_life() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(count_rows).start().await?;
    let request = job(Do::succeed()).heartbeat_timeout(SECOND * 2);
    let ended = engine.wait(engine.enqueue(request).await?.id).await?;
    assert_eq!((ended.job.state, ended.job.attempt), (State::Succeeded, 1));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_lost_its_lease_can_say_nothing_more() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(async |_: Do, context: Context| -> HandlerResult {
        context.progress(&"mine").await?;
        context.engine().cancel_with(context.job_id(), Duration::ZERO, None).await?;
        let refused = context.progress(&"still mine").await;
        assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
        Ok(())
    });
    let worker = worker.start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    assert_eq!(engine.wait(id).await?.job.state, State::Cancelled);
    tokio::time::sleep(SECOND).await;
    assert_eq!(engine.progress(id).await?.unwrap().get::<String>()?, "mine");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_too_long_is_refused_and_the_job_goes_on() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(async |_: Do, context: Context| -> HandlerResult {
        let refused = context.progress(&"x".repeat(16 * 1024)).await.unwrap_err();
        assert!(refused.to_string().contains("progress"), "{refused}");
        context.progress(&"x".repeat(16 * 1024 - 2)).await?;
        Ok(())
    });
    let worker = worker.start().await?;
    let id = engine.enqueue(job(Do::succeed()).max_retries(0)).await?.id;
    assert!(engine.wait(id).await?.is_success());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_progress_of_another_tenants_job_is_not_told() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(count_rows).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    assert!(engine.wait(id).await?.is_success());
    let other = engine.tenant("other")?;
    assert!(matches!(other.progress(id).await, Err(Error::NoJob(job)) if job == id));
    worker.shutdown().await?;
    Ok(())
}
