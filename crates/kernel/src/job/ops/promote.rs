//! Promote: a scheduled job becomes due, because its time came or because someone does not want to wait.
//!
//! It keeps the place in its queue that its own time gives it.

use crate::footprint::Footprint;
use crate::{
    Actor, By, Cause, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition,
    ops::unchanged_since,
    timer::{self, Alarm},
    transition::Draft,
};

/// A scheduled job becomes due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promote {
    /// The job.
    pub job_id: JobId,
    /// Why now.
    pub when: PromoteWhen,
}

/// Why a scheduled job becomes due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromoteWhen {
    /// Its time came.
    Due {
        /// The version that the timer saw.
        version: u64,
    },
    /// Someone does not want to wait.
    Now {
        /// Who.
        by: By,
    },
}

impl Promote {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_job(self.job_id)
    }
}

pub(crate) fn decide(job: &Job, op: &Promote, now: Timestamp) -> Result<Transition, Refusal> {
    let (cause, by) = match &op.when {
        PromoteWhen::Due { version } => {
            unchanged_since(job, *version)?;
            if let Some(at) = timer::rings_at(job, Alarm::Due).filter(|at| *at > now) {
                return Err(Refusal::NotDue { at });
            }
            (Cause::Due, By::from(Actor::Scheduler))
        }
        PromoteWhen::Now { by } => (Cause::RunNow, by.clone()),
    };
    let mut draft = Draft::of(job, OpKind::Promote, &by, now);
    draft.record(cause, Fact::Plain)?;
    Ok(draft.finish(None))
}
