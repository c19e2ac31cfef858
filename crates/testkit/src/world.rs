//! A world: what a story needs of a store, so that the same stories run on every one of them.
//!
//! A world applies ops at the time it is told and shows what it holds. It has no clock of its own, and
//! nothing happens in it that a story did not ask for: timers are fired by the story's runner.

use windlass_kernel::{
    Answer, Approval, Attempt, DeadLetter, DlqId, Event, Job, JobId, Op, Refusal, Timestamp,
};

use crate::MapStore;

/// A store that a story can live in. It is empty when the story begins.
pub trait World {
    /// Applies one op, whole or not at all.
    fn commit(&mut self, op: Op, now: Timestamp) -> Result<Answer, Refusal>;

    /// The job as it stands.
    fn job(&mut self, job_id: JobId) -> Option<Job>;

    /// The history of a job, in order.
    fn events(&mut self, job_id: JobId) -> Vec<Event>;

    /// A dead letter as it stands.
    fn letter(&mut self, dlq_id: DlqId) -> Option<DeadLetter>;

    /// What people said about a dead letter, in order.
    fn approvals(&mut self, dlq_id: DlqId) -> Vec<Approval>;

    /// The attempts that a job made, in order.
    fn attempts(&mut self, job_id: JobId) -> Vec<Attempt>;

    /// All jobs that are not at an end: those for which time can do something.
    fn open_jobs(&mut self) -> Vec<Job>;

    /// The store is restored from a copy: a new incarnation begins.
    fn restore(&mut self);
}

impl World for MapStore {
    fn commit(&mut self, op: Op, now: Timestamp) -> Result<Answer, Refusal> {
        MapStore::commit(self, &op, now)
    }

    fn job(&mut self, job_id: JobId) -> Option<Job> {
        self.jobs.get(&job_id).cloned()
    }

    fn events(&mut self, job_id: JobId) -> Vec<Event> {
        self.events_of(job_id).into_iter().cloned().collect()
    }

    fn letter(&mut self, dlq_id: DlqId) -> Option<DeadLetter> {
        self.letters.get(&dlq_id).cloned()
    }

    fn approvals(&mut self, dlq_id: DlqId) -> Vec<Approval> {
        self.approvals.iter().filter(|approval| approval.dlq_id == dlq_id).cloned().collect()
    }

    fn attempts(&mut self, job_id: JobId) -> Vec<Attempt> {
        self.attempts.values().filter(|attempt| attempt.job_id == job_id).cloned().collect()
    }

    fn open_jobs(&mut self) -> Vec<Job> {
        self.jobs.values().filter(|job| !job.state.is_end()).cloned().collect()
    }

    fn restore(&mut self) {
        self.incarnation += 1;
    }
}
