//! `latency`: how soon a job starts when the machine is not busy.
//!
//! Jobs come at an even pace, whether or not the ones before are through. A worker waits for a signal and
//! claims the moment an enqueue is known to be durable; nobody polls. What runs is settled beside it, as a
//! worker settles while it waits for more.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{sync::Semaphore, task::JoinSet, time};
use windlass_kernel::{JobId, WorkerId};
use windlass_store::Granted;

use super::{
    error::Error,
    load::{Load, gather},
    noop::worker,
    times::Times,
};

/// A hundred jobs a second.
const PACE: Duration = Duration::from_millis(10);

/// The most jobs of one claim, if the worker fell behind.
const CLAIM_MAX: usize = 100;

/// The times are of jobs, from the call of enqueue to the answer that says it started, which is durable.
pub(super) async fn run(load: &Arc<Load>, jobs: u64, workers: u64) -> Result<Times, Error> {
    let line = Arc::new(Line::new(jobs));
    let mut tasks: JoinSet<_> =
        (1..=workers).map(|number| work(load.clone(), line.clone(), number)).collect();
    tasks.spawn(produce(load.clone(), line));
    gather(tasks).await
}

/// Jobs on their way from the one who enqueues to the one who starts.
struct Line {
    /// One permit for each job that is ready and was not claimed. It is closed after the last start.
    ready: Semaphore,
    state: Mutex<State>,
}

struct State {
    called_at: HashMap<JobId, Instant>,
    /// Jobs that have not started.
    left: u64,
}

impl Line {
    fn new(jobs: u64) -> Self {
        let state = State { called_at: HashMap::new(), left: jobs };
        Self { ready: Semaphore::new(0), state: Mutex::new(state) }
    }

    fn called(&self, id: JobId) {
        self.lock().called_at.insert(id, Instant::now());
    }

    /// Waits until a job is ready, and says how many are. None, after the last.
    async fn next(&self) -> Option<usize> {
        self.ready.acquire().await.ok()?.forget();
        Some(1 + self.ready.forget_permits(CLAIM_MAX - 1))
    }

    fn started(&self, granted: &[Granted], times: &mut Times) {
        let now = Instant::now();
        let mut state = self.lock();
        for Granted { job, .. } in granted {
            let called_at = state.called_at.remove(&job.id).expect("nobody else enqueues");
            times.record(now - called_at, 1);
            state.left -= 1;
        }
        if state.left == 0 {
            self.ready.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enqueues at the pace. A slow answer does not hold up the next job.
async fn produce(load: Arc<Load>, line: Arc<Line>) -> Result<Times, Error> {
    let mut ticks = time::interval(PACE);
    let mut calls = JoinSet::new();
    while load.take(1) == 1 {
        ticks.tick().await;
        calls.spawn(call(load.clone(), line.clone()));
        // Whoever has ended leaves, so that only those who wait take memory.
        while let Some(ended) = calls.try_join_next() {
            ended.expect("a call does not panic")?;
        }
    }
    gather(calls).await
}

async fn call(load: Arc<Load>, line: Arc<Line>) -> Result<Times, Error> {
    let op = load.noop.enqueue();
    line.called(op.job_id);
    load.handle.submit(load.noop.op(op)).await?;
    line.ready.add_permits(1);
    Ok(Times::default())
}

async fn work(load: Arc<Load>, line: Arc<Line>, number: u64) -> Result<Times, Error> {
    let worker = worker(number);
    let mut times = Times::default();
    let mut running = JoinSet::new();
    while let Some(count) = line.next().await {
        let granted = load.claim(&worker, count).await?;
        line.started(&granted, &mut times);
        load.progress.add(count as u64)?;
        running.spawn(settle(load.clone(), worker.clone(), granted));
        while let Some(ended) = running.try_join_next() {
            ended.expect("a run does not panic")?;
        }
    }
    gather(running).await?;
    Ok(times)
}

async fn settle(load: Arc<Load>, worker: WorkerId, granted: Vec<Granted>) -> Result<Times, Error> {
    load.settle(&worker, &granted).await?;
    Ok(Times::default())
}
