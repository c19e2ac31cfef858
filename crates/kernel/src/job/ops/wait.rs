//! Wait: a handler parks its job on a signal, a time or a child.
//!
//! A waiting job holds no lease and is never reclaimed: only what it waits for, its time, or a cancel
//! wakes it. A job that is to be cancelled may not begin to wait. A wait for a child that has ended
//! already is over at once, and so is a wait for mail of which more has come than the handler has seen.

use crate::footprint::Footprint;
use crate::{
    By, Cause, Epoch, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition,
    footprint::LedgerRows,
    job::{Wait, WaitOn, Wakeup},
    ops::{Current, fence},
    transition::Draft,
};

/// A handler parks its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitFor {
    /// How much mail the handler knows of, if it waits for mail: if more has come, the wait is over at once.
    pub mails_seen: Option<u32>,
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// What it waits for.
    pub wait: Wait,
}

impl WaitFor {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let relative = match self.wait.on {
            WaitOn::Child(child) => Some(child),
            // The ends of children that a ledger waits for come as mail.
            WaitOn::Signal(_) | WaitOn::Time | WaitOn::Message(_) => None,
            WaitOn::Any(_) | WaitOn::Operator { .. } => None,
        };
        let ledger = LedgerRows::Awaited(&self.wait.on);
        Footprint { relative, ledger, ..Footprint::of_lease(self.job_id) }
    }
}

pub(crate) fn decide(
    job: &Job,
    current: &Current<'_>,
    op: &WaitFor,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Wait)?;
    if job.state != State::Running {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Wait });
    }
    if op.wait.on.has_time() && op.wait.until.is_none() {
        return Err(Refusal::invalid("until", "is needed to wait for a time"));
    }
    if op.wait.on.has_message() && op.mails_seen.is_none() {
        return Err(Refusal::invalid("mails_seen", "is needed to wait for messages"));
    }
    if job.cancel.is_some() {
        return Err(Refusal::CancelRequested);
    }
    let mut draft = Draft::of(job, OpKind::Wait, &by, now);
    draft.record(Cause::JobWaiting, Fact::Parked { wait: op.wait.clone() })?;
    if let WaitOn::Child(_) = op.wait.on {
        let child = current.child.ok_or(Refusal::NotFound { what: "child" })?;
        if child.spec.parent != Some(job.id) {
            return Err(Refusal::invalid("child", "is not a child of this job"));
        }
        // Its end was told while nobody waited: the wait is over before it began.
        if child.state.is_end() {
            let woken = Fact::Woken { how: Wakeup::Child, payload: None };
            draft.record(Cause::WaitCompleted, woken)?;
            return Ok(draft.finish(None));
        }
    }
    // What came since the handler looked may be what it waits for.
    let has_more = op.mails_seen.is_some_and(|seen| seen < job.ledger.mails);
    if has_more || !current.mails.is_empty() {
        let woken = Fact::Woken { how: Wakeup::Signal, payload: None };
        draft.record(Cause::WaitCompleted, woken)?;
    }
    Ok(draft.finish(None))
}
