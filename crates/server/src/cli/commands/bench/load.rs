//! What all callers or workers of a workload share: the way in, and what is left to do.

use std::{
    panic,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::task::JoinSet;
use windlass::{Handle, SubmitError};
use windlass_store::Write;

use super::{error::Error, noop::Noop, progress::Progress, times::Times};

pub(super) struct Load {
    pub(super) handle: Handle,
    pub(super) noop: Noop,
    pub(super) progress: Progress,
    /// Jobs that nobody has taken on yet.
    left: AtomicU64,
}

impl Load {
    pub(super) fn new(handle: Handle, progress: Progress, noop: Noop, jobs: u64) -> Arc<Self> {
        Arc::new(Self { handle, noop, progress, left: AtomicU64::new(jobs) })
    }

    /// Takes on at most this many jobs. Zero, when there is nothing left to do.
    pub(super) fn take(&self, max: u64) -> u64 {
        let before =
            self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(max)));
        before.unwrap_or_else(|left| left).min(max)
    }

    /// Writes all of them, and waits until all are durable.
    pub(super) async fn submit_all(&self, writes: Vec<Write>) -> Result<(), Error> {
        for answer in self.handle.submit_many(writes).await {
            answer?;
        }
        Ok(())
    }
}

/// Waits for all of them, and puts their times together. The first error ends it.
pub(super) async fn gather(mut tasks: JoinSet<Result<Times, Error>>) -> Result<Times, Error> {
    let mut times = Times::default();
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            // Nobody aborts a task of ours but the end of the runtime.
            Err(_) => Err(SubmitError::Closed.into()),
        });
        times.merge(&ended?);
    }
    Ok(times)
}
