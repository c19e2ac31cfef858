//! Wait: a handler parks its job on a signal, a time or a child.
//!
//! A waiting job holds no lease and is never reclaimed: only what it waits for, its time, or a cancel
//! wakes it. A job that is to be cancelled may not begin to wait. A wait for a child that has ended
//! already is over at once. Signals that come before their wait are not kept yet.

use crate::{
    By, Cause, Epoch, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition,
    job::{Wait, WaitOn, Wakeup},
    ops::fence,
    transition::Draft,
};

/// A handler parks its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitFor {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// What it waits for.
    pub wait: Wait,
}

pub(super) fn decide(
    job: &Job,
    child: Option<&Job>,
    op: &WaitFor,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Wait)?;
    if job.state != State::Running {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Wait });
    }
    if op.wait.on == WaitOn::Time && op.wait.until.is_none() {
        return Err(Refusal::invalid("until", "is needed to wait for a time"));
    }
    if job.cancel.is_some() {
        return Err(Refusal::CancelRequested);
    }
    let mut draft = Draft::of(job, OpKind::Wait, &by, now);
    draft.record(Cause::JobWaiting, Fact::Parked { wait: op.wait.clone() })?;
    if let WaitOn::Child(_) = op.wait.on {
        let child = child.ok_or(Refusal::NotFound { what: "child" })?;
        if child.spec.parent != Some(job.id) {
            return Err(Refusal::invalid("child", "is not a child of this job"));
        }
        // Its end was told while nobody waited: the wait is over before it began.
        if child.state.is_end() {
            let woken = Fact::Woken { how: Wakeup::Child, payload: None };
            draft.record(Cause::WaitCompleted, woken)?;
        }
    }
    Ok(draft.finish(None))
}
