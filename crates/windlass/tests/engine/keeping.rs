//! What runs by itself beside the work: retention, and timers that another engine has.

use std::time::Duration;

use windlass::{Config, Engine, Error, HandlerResult, State, job, testing, timers};
use windlass_kernel::Retention;

use crate::common::{Do, act};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(start_paused = true)]
async fn finished_jobs_are_forgotten_and_open_ones_stay() -> HandlerResult {
    // Nothing is forgotten sooner, whatever is asked for.
    let finished_for = Retention::RETRY_WINDOW;
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let retention = Retention { finished_for, ..Retention::default() };
    let config = testing::config(clock, testing::seeded(1));
    let engine = Engine::on(store, &Config { retention: Some(retention), ..config });
    let worker = engine.worker().handle(act).start().await?;
    let finished = engine.enqueue(Do::succeed()).await?.id;
    let running = engine.enqueue(Do::Hang).await?.id;
    let scheduled = engine.enqueue(job(Do::succeed()).after(HOUR)).await?.id;
    assert!(engine.wait(finished).await?.is_success());

    tokio::time::sleep(finished_for - Duration::from_secs(1)).await;
    assert_eq!(engine.job(finished).await?.state, State::Succeeded, "it is kept long enough");
    // The next pass comes within a prune interval; it goes in steps with pauses.
    let prune_every = timers::Config::default().prune_every;
    tokio::time::sleep(prune_every + Duration::from_secs(2)).await;
    assert!(matches!(engine.job(finished).await, Err(Error::NoJob(id)) if id == finished));
    assert_eq!(engine.job(running).await?.state, State::Running);
    assert_eq!(engine.job(scheduled).await?.state, State::Scheduled);
    worker.kill();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_timers_leaves_alarms_to_another() -> HandlerResult {
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let config = testing::config(clock, testing::seeded(1));
    let without = Engine::on(store.clone(), &Config { timers: None, ..config.clone() });
    let worker = without.worker().handle(act).start().await?;
    let early = without.enqueue(job(Do::succeed()).after(HOUR)).await?.id;
    let late = without.enqueue(job(Do::succeed()).after(HOUR * 3)).await?.id;
    tokio::time::sleep(HOUR * 2).await;
    assert_eq!(without.job(early).await?.state, State::Scheduled, "nobody looked");

    let with = Engine::on(store, &config);
    let early = without.wait(early).await?.job;
    let late = without.wait(late).await?.job;
    for (job, due_after) in [(early, HOUR * 2), (late, HOUR * 3)] {
        let started = job.started_at.unwrap().since(job.spec.created_at);
        assert!(started >= due_after, "it started after {started:?}");
        assert!(started < due_after + Duration::from_millis(20), "it started after {started:?}");
    }
    worker.shutdown().await?;
    with.close().await;
    Ok(())
}
