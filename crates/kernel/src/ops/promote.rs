//! Promote: a scheduled job becomes due.

use crate::{
    Actor, By, Cause, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition,
    ops::unchanged_since, timer, transition::Draft,
};

/// A scheduled job's time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promote {
    /// The job.
    pub job_id: JobId,
    /// The version that the timer saw.
    pub version: u64,
}

pub(super) fn decide(job: &Job, op: &Promote, now: Timestamp) -> Result<Transition, Refusal> {
    unchanged_since(job, op.version)?;
    if let Some(at) = timer::rings_at(job, timer::Alarm::Due).filter(|at| *at > now) {
        return Err(Refusal::NotDue { at });
    }
    let by = By::from(Actor::Scheduler);
    let mut draft = Draft::of(job, OpKind::Promote, &by, now);
    draft.record(Cause::Due, Fact::Plain)?;
    Ok(draft.finish(None))
}
