//! The tally: what this engine has written since its start, counted. It is for figures and rates, and is of one process.
//!
//! A write that was answered from the record did nothing, and is not counted. What users enqueue in their own
//! transactions passes no Committer, and is not counted as enqueued.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use windlass_kernel::{Op, State};
use windlass_store::{Reply, Write};

/// What is counted, while it is.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    enqueued: AtomicU64,
    started: AtomicU64,
    succeeded: AtomicU64,
    retried: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    interrupted: AtomicU64,
    by_queue: Mutex<BTreeMap<String, u64>>,
}

/// What was counted so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tallied {
    /// Jobs that were made.
    pub enqueued: u64,
    /// Executions that began.
    pub started: u64,
    /// Jobs that were done, be it in part.
    pub succeeded: u64,
    /// Failures that are tried again.
    pub retried: u64,
    /// Jobs that were given up.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
    /// Executions that were cut off.
    pub interrupted: u64,
    /// Executions that began, by queue.
    pub started_by_queue: BTreeMap<String, u64>,
}

impl Tally {
    /// Counts what a write did.
    pub(crate) fn count(&self, write: &Write, reply: &Reply) {
        match reply {
            Reply::Answer(answer, _) if !answer.recorded => {
                if let Write::Op { op, .. } = write
                    && let Some(count) = self.moved(op, answer.state)
                {
                    count.fetch_add(1, Relaxed);
                }
            }
            Reply::Granted { jobs, repeated: false, .. } if !jobs.is_empty() => {
                let mut by_queue = self.by_queue.lock().unwrap_or_else(PoisonError::into_inner);
                for granted in jobs.iter().filter(|it| it.job.state == State::Running) {
                    self.started.fetch_add(1, Relaxed);
                    let queue = granted.job.spec.queue.as_str();
                    match by_queue.get_mut(queue) {
                        Some(count) => *count += 1,
                        None => drop(by_queue.insert(queue.to_owned(), 1)),
                    }
                }
            }
            Reply::Scheduled(scheduled) => {
                self.enqueued.fetch_add(scheduled.made.len() as u64, Relaxed);
            }
            _ => {}
        }
    }

    /// Which count a job belongs to that an op brought into this state.
    fn moved(&self, op: &Op, state: State) -> Option<&AtomicU64> {
        match op {
            Op::Enqueue(_) | Op::Requeue(_) | Op::Rerun(_) => Some(&self.enqueued),
            Op::Start(_) => Some(&self.started),
            Op::Settle(_) | Op::Expire(_) | Op::Cancel(_) | Op::Bury(_) => match state {
                State::Succeeded | State::Partial => Some(&self.succeeded),
                State::RetryScheduled => Some(&self.retried),
                State::Failed => Some(&self.failed),
                State::Cancelled => Some(&self.cancelled),
                State::Interrupted => Some(&self.interrupted),
                _ => None,
            },
            _ => None,
        }
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Tallied {
        let by_queue = self.by_queue.lock().unwrap_or_else(PoisonError::into_inner);
        Tallied {
            enqueued: self.enqueued.load(Relaxed),
            started: self.started.load(Relaxed),
            succeeded: self.succeeded.load(Relaxed),
            retried: self.retried.load(Relaxed),
            failed: self.failed.load(Relaxed),
            cancelled: self.cancelled.load(Relaxed),
            interrupted: self.interrupted.load(Relaxed),
            started_by_queue: by_queue.clone(),
        }
    }
}
