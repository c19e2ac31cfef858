//! Checkpoint: a handler saves its progress.
//!
//! Progress clears the count of interruptions: a job that gets on is no poison.

use crate::{
    By, Cause, Digest, Epoch, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition, ops::fence,
    transition::Draft,
};

/// A handler saves its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// The digest of the saved state.
    pub state: Digest,
}

pub(super) fn decide(job: &Job, op: &Checkpoint, now: Timestamp) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Checkpoint)?;
    let mut draft = Draft::of(job, OpKind::Checkpoint, &by, now);
    draft.record(Cause::Checkpoint, Fact::Checkpoint { state: op.state })?;
    Ok(draft.finish(None))
}
