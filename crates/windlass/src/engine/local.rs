//! What the workers of this process have to know at once.
//!
//! A worker hears of a cancel request or of a lost lease with its next renewal. If the op that brought it
//! went through this process, it need not wait for that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use windlass_kernel::{Answer, Epoch, JobId, State, WorkerId};
use windlass_store::Bell;

use crate::worker::Executions;

/// The workers of this process.
#[derive(Debug, Default)]
pub(crate) struct Local {
    workers: Mutex<Vec<(WorkerId, Weak<Executions>)>>,
    /// Rings when a retry has become due: time alone makes it ready, so no commit tells of it.
    pub(crate) retry_due: Bell,
}

impl Local {
    /// A worker begins.
    pub(crate) fn add(&self, worker: &WorkerId, executions: &Arc<Executions>) {
        let mut workers = self.workers();
        workers.retain(|(_, worker)| worker.strong_count() > 0);
        workers.push((worker.clone(), Arc::downgrade(executions)));
    }

    /// The other workers of this process.
    pub(crate) fn neighbours_of(&self, worker: &WorkerId) -> Vec<WorkerId> {
        let workers = self.workers();
        let live = workers.iter().filter(|(id, it)| id != worker && it.strong_count() > 0);
        live.map(|(id, _)| id.clone()).collect()
    }

    fn live(&self) -> Vec<Arc<Executions>> {
        self.workers().iter().filter_map(|(_, worker)| worker.upgrade()).collect()
    }

    /// Ops were answered. What they mean for executions in this process is told there.
    pub(super) fn note<'a>(&self, answers: impl Iterator<Item = &'a Answer>) {
        let mut live = None;
        for answer in answers {
            let is_held = matches!(answer.state, State::Dispatched | State::Running);
            if is_held && !answer.cancel_requested {
                continue;
            }
            for worker in live.get_or_insert_with(|| self.live()) {
                if is_held {
                    worker.cancel(answer.job_id, answer.epoch);
                } else {
                    worker.lose(answer.job_id, answer.epoch);
                }
            }
        }
    }

    /// An execution in this process has lost its lease.
    pub(crate) fn lose(&self, job_id: JobId, epoch: Epoch) {
        for worker in self.live() {
            worker.lose(job_id, epoch);
        }
    }

    fn workers(&self) -> MutexGuard<'_, Vec<(WorkerId, Weak<Executions>)>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
