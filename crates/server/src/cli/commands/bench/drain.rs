//! `drain`: workers empty a queue, each with many slots and a handler that has nothing to do.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use serde::de::IgnoredAny;
use tokio::sync::Notify;
use windlass::{Engine, HandlerResult, Report};

use super::{error::Error, noop::KIND, progress::Progress, times::Times};

/// How many jobs one worker runs at the same time.
const SLOTS: usize = 500;

/// The bar moves by so many jobs: it is slower than a job.
const STEP: u64 = 256;

/// What the workers have done.
struct Done {
    left: AtomicU64,
    progress: Progress,
    times: Mutex<Times>,
    over: Notify,
}

/// The times are of jobs, each from the call of its claim to the durable answer to its settle.
///
/// It is done when so many jobs have come to their end. Then workers are shut down, one after the other, and what they
/// still do to jobs that stay behind is no longer timed.
pub(super) async fn run(
    engine: &Engine,
    progress: &Progress,
    jobs: u64,
    workers: u64,
    when_done: impl FnOnce(),
) -> Result<Times, Error> {
    if jobs == 0 {
        return Ok(Times::default());
    }
    let (left, times) = (AtomicU64::new(jobs), Mutex::default());
    let done = Arc::new(Done { left, progress: progress.clone(), times, over: Notify::new() });
    let mut running = Vec::new();
    for _ in 0..workers {
        let observed = done.clone();
        let worker = engine.worker().name("bench").concurrency(SLOTS).handle_kind(KIND, nothing);
        let worker = worker.observe(move |report| observed.ended(report));
        running.push(worker.start().await?);
    }
    for worker in &mut running {
        tokio::select! {
            biased;
            () = done.over.notified() => break,
            // It ends by itself if the store has stopped.
            ended = worker.ended() => ended?,
        }
    }
    when_done();
    let times = done.times.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for worker in running {
        worker.shutdown().await?;
    }
    progress.add(0)?;
    Ok(times)
}

async fn nothing(_: IgnoredAny) -> HandlerResult {
    Ok(())
}

impl Done {
    fn ended(&self, report: &Report<'_>) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).record(report.took, 1);
        let left = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        let left = left.unwrap_or(0);
        // Ctrl-C ends it like the last job.
        let is_stopped = left.is_multiple_of(STEP) && self.progress.add(STEP).is_err();
        if is_stopped || left == 1 {
            self.over.notify_one();
        }
    }
}
