//! Jobs that a worker claimed ahead are started in time or given back; none is lost, and none runs twice.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{sleep, timeout};
use windlass::{Context, Engine, HandlerResult, JobId, Scope, State, Worker, testing};
use windlass_kernel::WorkerId;

use crate::{
    chance::Chance,
    common::{Ahead, Do, act, claim_ahead, path},
    line::{Line, Weather},
};

const CONCURRENCY: usize = 2;

#[tokio::test(start_paused = true)]
async fn as_many_are_claimed_ahead_as_the_pace_and_the_option_allow() -> HandlerResult {
    // Two slots and jobs of ten milliseconds: about twenty end in a tenth of a second.
    let pace = 22;
    for (prefetch, job_ms, ahead_min, ahead_max) in [
        (None, 10, 0, 0),
        (Some(0), 10, 0, 0),
        (Some(5), 10, 5, 5),
        (Some(1_000), 10, 10, pace),
        // Jobs that take long are left to other workers.
        (Some(1_000), 3_000, 0, 0),
    ] {
        let engine = testing::engine()?;
        let worker = engine.worker().concurrency(CONCURRENCY).handle(act);
        let worker = match prefetch {
            Some(jobs) => worker.prefetch(jobs),
            None => worker,
        };
        let worker = worker.start().await?;
        let jobs = if job_ms < 1_000 { 200 } else { 20 };
        let ids = engine.enqueue_all((0..jobs).map(|_| Do::SleepMs(job_ms))).await;
        let (mut ahead_most, mut running_most) = (0, 0);
        while count(&engine, State::Succeeded).await < jobs {
            ahead_most = ahead_most.max(count(&engine, State::Dispatched).await);
            running_most = running_most.max(count(&engine, State::Running).await);
            sleep(Duration::from_millis(job_ms / 10)).await;
        }
        let case = format!("{ahead_most} ahead, with {prefetch:?} and jobs of {job_ms} ms");
        assert!((ahead_min..=ahead_max).contains(&ahead_most), "{case}");
        assert_eq!(running_most, CONCURRENCY, "{case}");
        for id in ids {
            assert_eq!(path(&engine, id?.id).await, "queued dispatched running succeeded");
        }
        worker.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_too_long_for_a_slot_is_given_back() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(CONCURRENCY).prefetch(50).handle(act).start().await?;
    let Ahead { long, waiting } = claim_ahead(&engine, 60_000).await?;
    sleep(Duration::from_millis(1_100)).await;
    for id in &waiting {
        assert_eq!(path(&engine, *id).await, "queued dispatched queued", "its second is over");
    }
    let other = engine.worker().handle(act).start().await?;
    for id in waiting {
        let ended = engine.wait(id).await?;
        assert!(ended.is_success());
        assert_eq!(ended.job.interruptions, 0, "it is nobody's fault");
        let expected = "queued dispatched queued dispatched running succeeded";
        assert_eq!(path(&engine, id).await, expected);
    }
    for id in long {
        assert_eq!(engine.job(id).await?.state, State::Running, "it took no notice of all this");
    }
    other.shutdown().await?;
    worker.kill();
    Ok(())
}

/// The worker hears at once of a cancellation in its own process. Of another one it hears when it starts the job.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_cancelled_in_the_local_queue_never_runs() -> HandlerResult {
    for is_elsewhere in [false, true] {
        let (here, elsewhere, _) = two_engines()?;
        let runs = Arc::new(Runs::default());
        let worker = recording(&here, &runs).await?;
        let Ahead { waiting, .. } = claim_ahead(&here, 500).await?;
        let (cancelled, others) = waiting.split_at(2);
        for id in cancelled {
            let engine = if is_elsewhere { &elsewhere } else { &here };
            assert_eq!(engine.cancel(*id).await?, State::Cancelled);
        }
        for id in others {
            assert!(here.wait(*id).await?.is_success());
            assert_eq!(path(&here, *id).await, "queued dispatched running succeeded");
        }
        sleep(Duration::from_secs(10)).await;
        for id in cancelled {
            assert_eq!(runs.of(*id), [], "it was cancelled before it started");
        }
        worker.shutdown().await?;
    }
    Ok(())
}

/// Slots become free while the store cannot be reached: the jobs that get them must not run before their start is
/// durable, and the others not after their lease.
#[tokio::test(start_paused = true)]
async fn a_job_whose_lease_ran_out_in_the_local_queue_runs_elsewhere_only() -> HandlerResult {
    let (cut_off, caller, line) = two_engines()?;
    let runs = Arc::new(Runs::default());
    let worker = cut_off.worker().concurrency(CONCURRENCY).prefetch(50).state(runs.clone());
    let worker = worker.lease(Duration::from_millis(600)).handle(record).start().await?;
    let Ahead { waiting, .. } = claim_ahead(&caller, 100).await?;
    line.set(Weather::Cut);
    sleep(Duration::from_secs(3)).await;
    let heir = recording(&caller, &runs).await?;
    for id in &waiting {
        assert!(timeout(Duration::from_secs(600), caller.wait(*id)).await??.is_success());
    }
    line.set(Weather::Fine);
    sleep(Duration::from_secs(60)).await;
    for id in waiting {
        assert_eq!(runs.of(id), [heir.id().clone()]);
    }
    heir.shutdown().await?;
    worker.shutdown().await?;
    Ok(())
}

/// Claims, starts and reports are sent again. Leases last so long that none runs out meanwhile.
#[tokio::test(start_paused = true)]
async fn no_job_is_lost_or_runs_twice_when_answers_are_lost() -> HandlerResult {
    let (engine, caller, line) = two_engines()?;
    let runs = Arc::new(Runs::default());
    let worker = engine.worker().concurrency(CONCURRENCY).prefetch(50).state(runs.clone());
    let lease = Duration::from_secs(3_600);
    let worker = worker.lease(lease).renew_every(Duration::from_secs(5)).handle(record);
    let worker = worker.start().await?;
    let (mut ids, mut rounds_ahead) = (Vec::new(), 0);
    for _ in 0..10 {
        line.set(Weather::Fine);
        for enqueued in caller.enqueue_all((0..100).map(|_| Do::SleepMs(10))).await {
            ids.push(enqueued?.id);
        }
        sleep(Duration::from_millis(300)).await;
        rounds_ahead += usize::from(count(&caller, State::Dispatched).await > 0);
        line.set(Weather::LosesAnswers);
        sleep(Duration::from_secs(2)).await;
    }
    line.set(Weather::Fine);
    for id in ids {
        let ended = timeout(Duration::from_secs(600), caller.wait(id)).await??;
        assert!(ended.is_success());
        assert_eq!((ended.job.interruptions, runs.of(id).len()), (0, 1));
    }
    assert!(rounds_ahead > 3, "only {rounds_ahead} rounds began with jobs ahead");
    assert!(line.lost_answers() > 10, "{} answers were lost", line.lost_answers());
    worker.shutdown().await?;
    Ok(())
}

/// An engine whose line to the store has weather, and one that reaches the same store at all times.
fn two_engines() -> HandlerResult<(Engine, Engine, Arc<Line>)> {
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let line = Arc::new(Line::new(store.clone(), Chance::new(1), Arc::default()));
    let far = Engine::on(line.clone(), &testing::config(clock.clone(), testing::seeded(1)));
    let near = Engine::on(store, &testing::config(clock, testing::seeded(2)));
    Ok((far, near, line))
}

/// A worker that claims ahead and keeps a record of what its handler runs.
async fn recording(engine: &Engine, runs: &Arc<Runs>) -> HandlerResult<Worker> {
    let worker = engine.worker().concurrency(CONCURRENCY).prefetch(50).state(runs.clone());
    Ok(worker.handle(record).start().await?)
}

async fn record(what: Do, context: Context, runs: Arc<Runs>) -> HandlerResult<windlass::Outcome> {
    let worker = context.worker().clone();
    runs.by_job.lock().unwrap().entry(context.job_id()).or_default().push(worker);
    act(what, context).await
}

/// Which workers ran the handler of which job.
#[derive(Debug, Default)]
struct Runs {
    by_job: Mutex<BTreeMap<JobId, Vec<WorkerId>>>,
}

impl Runs {
    fn of(&self, id: JobId) -> Vec<WorkerId> {
        self.by_job.lock().unwrap().get(&id).cloned().unwrap_or_default()
    }
}

/// How many jobs are in this state. A job that is started by its claim is never seen as dispatched.
async fn count(engine: &Engine, state: State) -> usize {
    let counts = engine.store().counts(&Scope::Every).await.unwrap();
    let counts = counts.iter().filter(|it| it.1 == state.as_str());
    counts.map(|it| usize::try_from(it.2).unwrap()).sum()
}
