//! Start: a worker begins to run a job that it has claimed.

use crate::footprint::Footprint;
use crate::{
    By, Cause, Epoch, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition, ops::fence,
    transition::Draft,
};

/// The handler begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
}

impl Start {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_lease(self.job_id)
    }
}

pub(crate) fn decide(job: &Job, op: &Start, now: Timestamp) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Start)?;
    if job.state == State::Running {
        return Ok(Transition::recorded(job));
    }
    let mut draft = Draft::of(job, OpKind::Start, &by, now);
    draft.record(Cause::Started, Fact::Plain)?;
    let mut transition = draft.finish(None);
    // Silence is counted from the start: before it there was nothing to hear.
    if let Some(lease) = &mut transition.job.lease {
        lease.beat_at = now;
    }
    Ok(transition)
}
