//! Cancel: someone does not want the job any more.
//!
//! A job that runs or waits is asked first: its handler may clean up and settles it as cancelled. After
//! the grace period, with `force`, or when its lease lapses it is cancelled all the same. Any other job
//! is cancelled at once.

use std::time::Duration;

use crate::footprint::Footprint;
use crate::{
    By, Cause, Digest, Fact, Job, JobId, OpKind, Refusal, State, Timestamp, Transition,
    job::Wakeup, ops::check_reason, transition::Draft,
};

/// Someone does not want the job any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// The job.
    pub job_id: JobId,
    /// Do not ask the handler.
    pub force: bool,
    /// How long the handler may take to clean up.
    pub grace: Duration,
    /// In the caller's words.
    pub reason: Option<String>,
    /// Who.
    pub by: By,
}

impl Cancel {
    /// How long a handler may take to clean up, unless the request says otherwise.
    pub const GRACE_DEFAULT: Duration = Duration::from_secs(30);
    /// The longest grace period.
    pub const GRACE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
}

impl Cancel {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let reason = self.reason.as_ref().map_or(0, String::len);
        Footprint::of_job(self.job_id).carrying(reason)
    }
}

pub(crate) fn decide(job: &Job, op: &Cancel, now: Timestamp) -> Result<Transition, Refusal> {
    if op.grace > Cancel::GRACE_MAX {
        return Err(Refusal::invalid("grace_ms", "must be at most 24 hours"));
    }
    check_reason(op.reason.as_deref())?;
    // Asking twice is asking once: it must not take away the time to clean up.
    if job.cancel.is_some() && !op.force && !job.state.is_end() {
        return Ok(Transition::recorded(job));
    }
    let asks = matches!(job.state, State::Running | State::Waiting) && !op.force;
    let mut draft = Draft::of(job, OpKind::Cancel, &op.by, now);
    if asks {
        let grace_until = now.plus(op.grace);
        let fact = Fact::CancelRequested { reason: op.reason.clone(), grace_until };
        draft.record(Cause::CancelRequested, fact)?;
        if job.state == State::Waiting {
            let woken = Fact::Woken { how: Wakeup::Cancelled, payload: None };
            draft.record(Cause::WaitCompleted, woken)?;
        }
    } else {
        let reason = op.reason.clone();
        draft.record(
            Cause::CancelCommand,
            Fact::Cancelled { reason, failure: None, settle: None },
        )?;
    }
    Ok(draft.finish(None))
}

/// Cancels a job that was to be cancelled anyway, in the words of the request.
pub(crate) fn record(draft: &mut Draft<'_>, settle: Option<Digest>) -> Result<(), Refusal> {
    let reason = draft.job().cancel.as_ref().and_then(|request| request.reason.clone());
    draft.record(Cause::CancelCommand, Fact::Cancelled { reason, failure: None, settle })
}
