//! After a mass failure recovery goes in steps, and new work is served beside it.
//!
//! Simulated time stands still while the processor works. So that waiting shows all the same, each call to the store
//! here takes its time on the line: a commit up to four milliseconds.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use windlass::{Context, Engine, HandlerResult, State, Timestamp, job, testing, timers::Config};
use windlass_kernel::WorkerId;
use windlass_store::{ReadFeed as _, ReadQueues as _, read::Scope, sqlite::Sqlite};

use crate::{
    chance::Chance,
    common::{Do, act},
    line::Line,
};

/// What the worker holds when it dies: ten times what one look of the timers takes on.
const HELD: usize = 2_000;
const LEASE: Duration = Duration::from_secs(5);
/// How long a new job may wait for its start beside all this. It waits for the commit that is under way, its claim
/// and its start.
const WAIT_MAX: Duration = Duration::from_millis(10);

#[tokio::test(start_paused = true)]
async fn leases_that_run_out_together_are_taken_step_by_step() -> HandlerResult {
    check(false).await
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_worker_that_is_proven_dead_are_taken_step_by_step() -> HandlerResult {
    check(true).await
}

/// Kills a worker that holds many jobs, and looks at what its jobs and new ones go through.
async fn check(proven: bool) -> HandlerResult {
    let (clock, dead) = (testing::clock(), Dead::default());
    let store = testing::store(clock.clone())?;
    let line = Line::new(store.clone(), Chance::new(1), dead.clone());
    let engine = Engine::on(Arc::new(line), &testing::config(clock, testing::seeded(1)));
    let victim = engine.worker().queues(["old"]).concurrency(HELD).prefetch(0).lease(LEASE);
    let victim = victim.handle(hang_once).start().await?;
    let old = engine.enqueue_all((0..HELD).map(|_| job(Do::Hang).queue("old"))).await;
    assert!(old.iter().all(Result::is_ok));
    while count(&store, "old", State::Running).await < HELD {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }

    let fresh = engine.worker().queues(["new"]).handle(act).start().await?;
    let heir = engine.worker().queues(["old"]).handle(hang_once).start().await?;
    let id = victim.id().clone();
    victim.kill();
    if proven {
        dead.lock().unwrap().insert(id);
    }
    let mut new = Vec::new();
    while count(&store, "old", State::Succeeded).await < HELD {
        new.push(engine.enqueue(job(Do::succeed()).queue("new")).await?.id);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    check_bursts(&interrupted_at(&store).await?);
    let mut worst = Duration::ZERO;
    for id in &new {
        let job = engine.wait(*id).await?.job;
        worst = worst.max(job.started_at.unwrap().since(job.spec.created_at));
    }
    println!("the worst wait of {} new jobs was {worst:?}", new.len());
    assert!(worst <= WAIT_MAX, "a new job waited for {worst:?}");
    assert!(dead.lock().unwrap().is_empty(), "the dead worker is forgotten");
    heir.shutdown().await?;
    fresh.shutdown().await?;
    Ok(())
}

/// Workers that are proven dead.
type Dead = Arc<Mutex<BTreeSet<WorkerId>>>;

async fn hang_once(_: Do, context: Context) -> HandlerResult {
    if context.interruptions() == 0 {
        std::future::pending::<()>().await;
    }
    Ok(())
}

async fn count(store: &Sqlite, queue: &str, state: State) -> usize {
    let counts = store.counts(&Scope::Every).await.unwrap();
    let it = counts.iter().find(|it| it.0 == queue && it.1 == state.as_str());
    it.map_or(0, |it| usize::try_from(it.2).unwrap())
}

/// When jobs were taken from their worker, in order. The feed tells of all of them at once.
async fn interrupted_at(store: &Sqlite) -> HandlerResult<Vec<Timestamp>> {
    let (mut times, mut after) = (Vec::new(), 0);
    loop {
        let events = store.feed(&Scope::Every, after, 100).await?;
        let Some(last) = events.events.last() else { break };
        after = last.number;
        let interrupted =
            events.events.iter().filter(|it| it.line.contains(r#""running","interrupted""#));
        times.extend(interrupted.map(|event| event.at));
    }
    assert_eq!(times.len(), HELD, "each is taken from its worker once");
    Ok(times)
}

/// What one look takes on is written together, and between two looks is a pause.
fn check_bursts(times: &[Timestamp]) {
    let Config { batch_max, pause, .. } = Config::default();
    let bursts: Vec<usize> =
        times.chunk_by(|one, next| next.since(*one) < pause).map(<[Timestamp]>::len).collect();
    assert!(bursts.iter().all(|jobs| *jobs <= batch_max), "{bursts:?}");
    assert!(bursts.len() >= HELD / batch_max, "{bursts:?}");
}
