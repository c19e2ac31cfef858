//! `latency`: how soon a job starts when the machine is not busy; or, with a backlog, when another tenant has jobs
//! without end.
//!
//! Jobs come at an even pace, whether or not the ones before are through. The worker that runs them is woken by each:
//! it polls once an hour.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use serde::de::IgnoredAny;
use tokio::{sync::Notify, task::JoinSet, time};
use windlass::{Context, Engine, HandlerResult};
use windlass_kernel::JobId;

use super::{
    error::Error,
    load::{Load, gather},
    noop::{KIND, Noop},
    times::Times,
};

/// A hundred jobs a second.
const PACE: Duration = Duration::from_millis(10);

/// Never while a benchmark lasts.
const POLL: Duration = Duration::from_secs(3600);

/// What the callers and the handlers know of each other.
struct Line {
    called_at: Mutex<HashMap<JobId, Instant>>,
    times: Mutex<Times>,
    left: AtomicU64,
    over: Notify,
}

/// The times are of jobs, from the call of enqueue to the beginning of the handler, whose start is durable.
pub(super) async fn run(
    engine: &Engine,
    load: &Arc<Load>,
    jobs: u64,
    workers: u64,
) -> Result<Times, Error> {
    let line = Arc::new(Line {
        called_at: Mutex::default(),
        times: Mutex::default(),
        left: AtomicU64::new(jobs),
        over: Notify::new(),
    });
    let mut running = Vec::new();
    for _ in 0..workers {
        let worker = engine.worker().name("bench").state(line.clone()).poll(POLL);
        running.push(worker.handle_kind(KIND, start).start().await?);
    }
    produce(load, &line).await?;
    for worker in &mut running {
        tokio::select! {
            biased;
            () = line.over.notified() => break,
            // It ends by itself if the store has stopped.
            ended = worker.ended() => ended?,
        }
    }
    for worker in running {
        worker.shutdown().await?;
    }
    Ok(line.times.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

async fn start(_: IgnoredAny, context: Context, line: Arc<Line>) -> HandlerResult {
    let now = Instant::now();
    let called_at = {
        let mut called_at = line.called_at.lock().unwrap_or_else(PoisonError::into_inner);
        called_at.remove(&context.job_id())
    };
    // The others are in the way, and nobody asked how soon they start.
    let Some(called_at) = called_at else { return Ok(()) };
    line.times.lock().unwrap_or_else(PoisonError::into_inner).record(now - called_at, 1);
    if line.left.fetch_sub(1, SeqCst) == 1 {
        line.over.notify_one();
    }
    Ok(())
}

/// Enqueues at the pace. A slow answer does not hold up the next job.
async fn produce(load: &Arc<Load>, line: &Arc<Line>) -> Result<(), Error> {
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
    gather(calls).await.map(drop)
}

async fn call(load: Arc<Load>, line: Arc<Line>) -> Result<Times, Error> {
    let op = load.noop.enqueue();
    line.called_at.lock().unwrap_or_else(PoisonError::into_inner).insert(op.job_id, Instant::now());
    load.handle.submit(Noop::write(op)).await?;
    load.progress.add(1)?;
    Ok(Times::default())
}
