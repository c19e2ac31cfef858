//! Checkpoint: a handler saves its progress.
//!
//! Progress clears the count of interruptions: a job that gets on is no poison.

use crate::{
    Actor, By, Cause, Digest, Epoch, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition,
    WorkerId, ops::fence, transition::Draft,
};

/// A handler saves its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// The worker session.
    pub worker: WorkerId,
    /// The digest of the saved state.
    pub state: Digest,
}

pub(super) fn decide(job: &Job, op: &Checkpoint, now: Timestamp) -> Result<Transition, Refusal> {
    fence(job, op.epoch)?;
    let by = By::from(Actor::Worker(op.worker.clone()));
    let mut draft = Draft::of(job, OpKind::Checkpoint, &by, now);
    draft.record(Cause::Checkpoint, Fact::Checkpoint { state: op.state })?;
    Ok(draft.finish(None))
}
