//! Release: a worker gives a job back in good order.
//!
//! What has not started goes back to its queue. What runs is interrupted, and that does not count: a
//! shutdown is no sign of a poison job. A job that is to be cancelled is cancelled instead.

use crate::footprint::Footprint;
use crate::{
    By, Cause, Epoch, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition,
    ops::{cancel, fence},
    transition::Draft,
};

/// A worker gives a job back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
}

impl Release {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_lease(self.job_id)
    }
}

pub(crate) fn decide(job: &Job, op: &Release, now: Timestamp) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Release)?;
    let mut draft = Draft::of(job, OpKind::Release, &by, now);
    if job.cancel.is_some() {
        cancel::record(&mut draft, None)?;
    } else if job.state == State::Dispatched {
        draft.record(Cause::Released, Fact::Plain)?;
    } else {
        draft.record(Cause::Shutdown, Fact::Interrupted { counted: false })?;
    }
    Ok(draft.finish(None))
}
