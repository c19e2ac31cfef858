//! Claim: a worker gets the lease of a job, under a new epoch.
//!
//! Whether it may have the job at all (limits, turns, pauses) was decided by `admit`. A job claimed out
//! of `retry_scheduled` begins its next attempt; one that was interrupted resumes the same attempt.

use std::time::Duration;

use crate::footprint::Footprint;
use crate::{
    Actor, By, Cause, Fact, Job, JobId, Lease, OpKind, Refusal, State, Timestamp, TraceId,
    Transition, WorkerId, ids::ClaimId, transition::Draft,
};

/// A worker asks for this job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The job.
    pub job_id: JobId,
    /// The identity of the claim: the same again gets the same lease.
    pub claim_id: ClaimId,
    /// The worker session.
    pub worker: WorkerId,
    /// The trace of the request, if it brought one.
    pub trace_id: Option<TraceId>,
    /// How long the lease lasts.
    pub lease: Duration,
    /// Start at once, in the same op.
    pub start: bool,
    /// The worker holds nothing else and will get nothing else beside it.
    pub alone: bool,
}

impl Claim {
    /// The shortest lease.
    pub const LEASE_MIN: Duration = Duration::from_millis(100);
    /// The longest lease.
    pub const LEASE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

    /// Refuses a lease that nobody can mean.
    pub fn check_lease(lease: Duration) -> Result<(), Refusal> {
        if lease < Self::LEASE_MIN || lease > Self::LEASE_MAX {
            return Err(Refusal::invalid("lease_ms", "must lie between 100 ms and 24 hours"));
        }
        Ok(())
    }
    /// How long after its grant a claim is known at the least, and in any case for as long as it holds something: the
    /// same again gets what it still holds of what it got, and never anything else. A duplicate that comes late would
    /// take jobs for nobody.
    pub const REMEMBERED_FOR: Duration = Duration::from_secs(60 * 60);
}

impl Claim {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_job(self.job_id)
    }
}

pub(crate) fn decide(
    job: &Job,
    op: &Claim,
    incarnation: u32,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    Claim::check_lease(op.lease)?;
    // Also when its lease is over: a claim that comes late once more must not take the job again.
    if job.claim_id == Some(op.claim_id) {
        return Ok(Transition::recorded(job));
    }
    if job.is_isolated() && !op.alone {
        return Err(Refusal::ClaimAlone);
    }
    if let Some(at) = job.claim_at().filter(|at| *at > now) {
        return Err(Refusal::NotDue { at });
    }
    let cause = match job.state {
        State::RetryScheduled => Cause::RetryDue,
        State::Interrupted => Cause::RecoveryResume,
        _ => Cause::WorkerClaim,
    };
    let by = By { actor: Actor::Worker(op.worker.clone()), trace_id: op.trace_id.clone() };
    let mut draft = Draft::of(job, OpKind::Claim, &by, now);
    let epoch = job.epoch.next(incarnation);
    draft
        .record(cause, Fact::Claimed { epoch, claim_id: op.claim_id, worker: op.worker.clone() })?;
    draft.grant(Lease {
        worker: op.worker.clone(),
        until: now.plus(op.lease),
        alone: op.alone,
        beat_at: now,
    });
    if op.start {
        draft.record(Cause::Started, Fact::Plain)?;
    }
    Ok(draft.finish(None))
}
