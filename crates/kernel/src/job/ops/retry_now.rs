//! Retry now: a job that waits for its retry becomes due at once.

use crate::footprint::Footprint;
use crate::{
    By, Cause, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition, transition::Draft,
};

/// A retry is made due at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryNow {
    /// The job.
    pub job_id: JobId,
    /// Who.
    pub by: By,
}

impl RetryNow {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_job(self.job_id)
    }
}

pub(crate) fn decide(job: &Job, op: &RetryNow, now: Timestamp) -> Result<Transition, Refusal> {
    if job.next_retry_at.is_some_and(|at| at <= now) {
        return Ok(Transition::recorded(job));
    }
    let mut draft = Draft::of(job, OpKind::RetryNow, &op.by, now);
    draft.record(Cause::RetryNow, Fact::Plain)?;
    Ok(draft.finish(None))
}
