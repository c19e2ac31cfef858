//! What has to be true on real stores, in real time.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use windlass::{Clock, Config, Engine, HandlerResult, State, Timestamp, clock, job};

use crate::common::{Do, Home, act};

/// One test for each store from each of these functions.
macro_rules! for_each_store {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use crate::common::Home;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                super::$name(Home::sqlite()).await.unwrap();
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                super::$name(Home::postgres()).await.unwrap();
            }
        })*
    };
}

for_each_store!(
    an_idle_worker_starts_a_new_job_at_once,
    a_retry_and_a_schedule_start_on_time,
    many_jobs_of_many_outcomes_come_to_their_ends,
);

async fn an_idle_worker_starts_a_new_job_at_once(home: Home) -> HandlerResult {
    let engine = home.open().await;
    // So rarely that only a wake-up can be the reason.
    let worker = engine.worker().poll(Duration::from_secs(600)).handle(act).start().await?;
    let mut waits = Vec::new();
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let id = engine.enqueue(Do::succeed()).await?.id;
        let ended = engine.wait(id).await?.job;
        waits.push(ended.started_at.unwrap().since(ended.spec.created_at));
    }
    waits.sort();
    assert!(waits[10] < Duration::from_millis(100), "{waits:?}");
    worker.shutdown().await?;
    Ok(())
}

async fn a_retry_and_a_schedule_start_on_time(home: Home) -> HandlerResult {
    let engine = home.open().await;
    let worker = engine.worker().poll(Duration::from_secs(600)).handle(act).start().await?;
    let soon = Duration::from_millis(150);
    let later = engine.enqueue(job(Do::succeed()).after(soon)).await?.id;
    let retried = engine.enqueue(job(Do::FailTimes(1)).backoff(soon, soon)).await?.id;
    let began = tokio::time::Instant::now();
    for id in [later, retried] {
        let ended = engine.wait(id).await?;
        assert!(ended.is_success());
        // What is scheduled is due by the caller's clock, and made a little later by the store's.
        let spec = &ended.job.spec;
        let due_at = spec.scheduled_at.unwrap_or(spec.created_at.plus(soon));
        let finished_at = ended.job.finished_at.unwrap();
        assert!(finished_at >= due_at, "{finished_at} is before {due_at}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    worker.shutdown().await?;
    Ok(())
}

/// On PostgreSQL the server's clock decides. That of this machine may be wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_an_hour_off_wakes_nobody_too_early_or_too_late() -> HandlerResult {
    const HOUR: Duration = Duration::from_secs(3600);
    const HOUR_MICROS: i64 = 3_600_000_000;
    let right = clock::system();
    let slow: Clock = {
        let right = right.clone();
        Arc::new(move || Timestamp::from_micros(right().as_micros() - HOUR_MICROS))
    };
    let fast: Clock = Arc::new(move || right().plus(HOUR));
    for clock in [slow, fast] {
        let home = Home::postgres();
        let config = Config { clock, ..Config::default() };
        let engine = Engine::open_with(&home.url, &config).await?;
        let worker = engine.worker().handle(act).start().await?;
        // The first look at the server's clock may take a moment on a busy machine.
        let known = async {
            loop {
                let probe = engine.enqueue(job(Do::succeed()).after(HOUR)).await?.id;
                let probe = engine.job(probe).await?.spec;
                let wait = probe.scheduled_at.unwrap().since(probe.created_at);
                if wait > HOUR / 2 && wait < HOUR + HOUR / 2 {
                    return HandlerResult::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(20), known).await??;
        let long = engine.enqueue(Do::SnoozeMs(600_000)).await?.id;
        let later = engine.enqueue(job(Do::succeed()).after(HOUR / 2)).await?.id;
        let short = engine.enqueue(Do::SnoozeMs(100)).await?.id;
        let soon = engine.enqueue(job(Do::succeed()).after(Duration::from_millis(100))).await?.id;
        for id in [short, soon] {
            assert!(timeout(Duration::from_secs(20), engine.wait(id)).await??.is_success());
        }
        assert_eq!(engine.job(long).await?.state, State::Waiting);
        assert_eq!(engine.job(later).await?.state, State::Scheduled);
        worker.shutdown().await?;
    }
    Ok(())
}

async fn many_jobs_of_many_outcomes_come_to_their_ends(home: Home) -> HandlerResult {
    let engine = home.open().await;
    let worker = engine.worker().concurrency(20).handle(act).start().await?;
    let quickly = Duration::from_millis(1);
    let outcomes = [
        Do::succeed(),
        Do::FailTimes(1),
        Do::FailForGood,
        Do::Panic,
        Do::SleepMs(3),
        Do::SnoozeMs(5),
        Do::Partial,
    ];
    let requests = (0..350).map(|number| {
        job(outcomes[number % outcomes.len()].clone()).backoff(quickly, quickly).max_retries(1)
    });
    let ids = engine.enqueue_all(requests).await;
    for id in ids {
        engine.wait(id?.id).await?;
    }
    worker.shutdown().await?;
    assert!(engine.own_store().unwrap().open_jobs().await?.is_empty());
    let held: u64 = engine.store().sessions().await?.iter().map(|session| session.held).sum();
    assert_eq!(held, 0);
    Ok(())
}
