//! Wake: a wait is over, because a child came to its end or because its time ran out. Signals end waits by their own op.
//!
//! The job goes back to its queue and keeps its place there. The handler sees how the wait ended.

use crate::footprint::Footprint;
use crate::{
    Actor, Cause, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition, job::Wakeup,
    ledger::MailName, ops::unchanged_since, transition::Draft,
};

/// A wait is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The job.
    pub job_id: JobId,
    /// What ended the wait.
    pub by: WakeBy,
}

/// What ends a wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeBy {
    /// A child came to its end.
    Child {
        /// The child.
        child: JobId,
    },
    /// Its time came.
    Time {
        /// The version that the timer saw.
        version: u64,
    },
}

impl Wake {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_job(self.job_id)
    }
}

pub(crate) fn decide(job: &Job, op: &Wake, now: Timestamp) -> Result<Transition, Refusal> {
    if let WakeBy::Time { version } = op.by {
        unchanged_since(job, version)?;
    }
    let Some(wait) = &job.wait else {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Wake });
    };
    let how = match &op.by {
        WakeBy::Child { child } => {
            expect(MailName::Child(*child).ends(&wait.on))?;
            Wakeup::Child
        }
        WakeBy::Time { .. } => {
            let at = wait.until.ok_or(Refusal::NotWaitingFor)?;
            if at > now {
                return Err(Refusal::NotDue { at });
            }
            if wait.on.has_time() { Wakeup::Time } else { Wakeup::TimedOut }
        }
    };
    debug_assert_eq!(job.state, State::Waiting, "only a waiting job has a wait");
    let by = Actor::Scheduler.into();
    let mut draft = Draft::of(job, OpKind::Wake, &by, now);
    draft.record(Cause::WaitCompleted, Fact::Woken { how, payload: None })?;
    Ok(draft.finish(None))
}

fn expect(awaited: bool) -> Result<(), Refusal> {
    if awaited { Ok(()) } else { Err(Refusal::NotWaitingFor) }
}
