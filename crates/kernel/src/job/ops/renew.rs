//! Renew: a worker keeps its lease. It writes no event, for a lease is not history.
//!
//! The answer brings what the worker has to know: a cancel request, or that the lease is lost. A renewal can carry
//! how far the handler has come, which replaces what was said before and is no history either.
//!
//! A renewal without a live lease is always `STALE_ATTEMPT`, also from the epoch that settled the job: renewals run
//! beside the handler, so one that crosses the settle on its way is no mistake of the worker.

use std::time::Duration;

use crate::footprint::{Footprint, size};
use crate::{
    Answer, By, Epoch, Job, JobId, Payload, Progress, Refusal, Timestamp, Transition,
    ops::{Claim, live_lease},
};

/// A worker keeps its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renew {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// How long the lease lasts from now.
    pub lease: Duration,
    /// Is it a sign of life of the handler, too?
    pub heartbeat: bool,
    /// How far the handler has come, in its own words.
    pub progress: Option<Payload>,
}

impl Renew {
    /// The longest report of progress.
    pub const PROGRESS_BYTES_MAX: usize = 16 * 1024;
}

impl Renew {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_lease(self.job_id).carrying(size(self.progress.as_ref()))
    }
}

pub(crate) fn decide(job: &Job, op: &Renew, now: Timestamp) -> Result<Transition, Refusal> {
    if live_lease(job, op.epoch, &op.by).is_none() {
        return Err(Refusal::StaleAttempt);
    }
    Claim::check_lease(op.lease)?;
    if let Some(value) = &op.progress
        && value.as_str().len() > Renew::PROGRESS_BYTES_MAX
    {
        return Err(Refusal::invalid("progress", "must be at most 16 KiB long"));
    }
    let mut transition = Transition::unchanged(job);
    let job = &mut transition.job;
    job.lease_count += 1;
    if let Some(lease) = &mut job.lease {
        lease.until = lease.until.max(now.plus(op.lease));
        if op.heartbeat {
            lease.beat_at = now;
        }
    }
    transition.progress =
        op.progress.clone().map(|value| Progress { epoch: op.epoch, at: now, value });
    transition.answer = Answer::of(&transition.job);
    Ok(transition)
}
