//! Wake: a wait is over, because what was waited for came or because its time ran out.
//!
//! The job goes back to its queue and keeps its place there. The handler sees how the wait ended.

use crate::{
    Actor, By, Cause, Digest, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition,
    ids::CorrelationKey,
    job::{WaitOn, Wakeup},
    ops::unchanged_since,
    transition::Draft,
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
    /// A signal came.
    Signal {
        /// Its key.
        key: CorrelationKey,
        /// The digest of what it brought.
        payload: Option<Digest>,
        /// Who sent it.
        by: By,
    },
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

pub(super) fn decide(job: &Job, op: &Wake, now: Timestamp) -> Result<Transition, Refusal> {
    if let WakeBy::Time { version } = op.by {
        unchanged_since(job, version)?;
    }
    let Some(wait) = &job.wait else {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Wake });
    };
    let (how, by, payload) = match &op.by {
        WakeBy::Signal { key, payload, by } => {
            expect(wait.on == WaitOn::Signal(key.clone()))?;
            (Wakeup::Signal, by.clone(), *payload)
        }
        WakeBy::Child { child } => {
            expect(wait.on == WaitOn::Child(*child))?;
            (Wakeup::Child, Actor::Scheduler.into(), None)
        }
        WakeBy::Time { .. } => {
            let at = wait.until.ok_or(Refusal::NotWaitingFor)?;
            if at > now {
                return Err(Refusal::NotDue { at });
            }
            let awaited = wait.on == WaitOn::Time;
            let how = if awaited { Wakeup::Time } else { Wakeup::TimedOut };
            (how, Actor::Scheduler.into(), None)
        }
    };
    debug_assert_eq!(job.state, State::Waiting, "only a waiting job has a wait");
    let mut draft = Draft::of(job, OpKind::Wake, &by, now);
    draft.record(Cause::WaitCompleted, Fact::Woken { how, payload })?;
    Ok(draft.finish(None))
}

fn expect(awaited: bool) -> Result<(), Refusal> {
    if awaited { Ok(()) } else { Err(Refusal::NotWaitingFor) }
}
