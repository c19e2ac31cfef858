//! Expire: something ran out, and the job must not stay as it is.
//!
//! Every expiry acts on the version it saw and looks at the time once more: a lease that was renewed in
//! the meantime is not expired. A lease of a session that is provably dead is expired at once.

use crate::footprint::Footprint;
use crate::{
    Actor, By, Cause, Fact, Failure, Jitter, Job, JobId, OpKind, Refusal, State, Timestamp,
    Transition,
    failure::{
        DEADLINE_EXCEEDED, HEARTBEAT_TIMEOUT, INTERRUPTED_TOO_OFTEN, SCHEDULE_TO_START_TIMEOUT,
        TASK_TIMEOUT,
    },
    ops::{bury, cancel, settle, unchanged_since},
    timer::{self, Alarm},
    transition::Draft,
};

/// Something ran out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expire {
    /// The job.
    pub job_id: JobId,
    /// The version that the timer saw.
    pub version: u64,
    /// What ran out.
    pub what: Expiry,
    /// The jitter of the retry, if one follows.
    pub jitter: Jitter,
}

/// What ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The lease.
    Lease,
    /// The lease, whatever its time: its session is provably dead.
    DeadSession,
    /// The time of one execution.
    StartToClose,
    /// The time that a handler may be silent.
    Heartbeat,
    /// The time until the first start.
    ScheduleToStart,
    /// The time of the whole job.
    Deadline,
    /// The time to clean up after a cancel request.
    CancelGrace,
}

impl Expire {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_job(self.job_id)
    }
}

pub(crate) fn decide(job: &Job, op: &Expire, now: Timestamp) -> Result<Transition, Refusal> {
    unchanged_since(job, op.version)?;
    let at = timer::rings_at(job, alarm(op.what))
        .ok_or(Refusal::InvalidTransition { from: job.state, op: OpKind::Expire })?;
    if at > now && op.what != Expiry::DeadSession {
        return Err(Refusal::NotDue { at });
    }
    let by = By::from(actor(op.what));
    let mut draft = Draft::of(job, OpKind::Expire, &by, now);
    match op.what {
        Expiry::Lease => lease_lost(&mut draft, Cause::LeaseExpired, now)?,
        Expiry::DeadSession => lease_lost(&mut draft, Cause::ProcessRestart, now)?,
        Expiry::StartToClose => {
            let failure = Failure::own(TASK_TIMEOUT, "start_to_close timeout");
            settle::fail(&mut draft, Cause::Timeout, failure, op.jitter, None, now)?;
        }
        Expiry::Heartbeat => {
            let failure = Failure::own(HEARTBEAT_TIMEOUT, "heartbeat timeout");
            settle::fail(&mut draft, Cause::HeartbeatTimeout, failure, op.jitter, None, now)?;
        }
        Expiry::ScheduleToStart => {
            let failure = Failure::own(SCHEDULE_TO_START_TIMEOUT, "schedule_to_start timeout");
            run_out(&mut draft, Cause::ScheduleToStartTimeout, failure)?;
        }
        Expiry::Deadline => deadline_passed(&mut draft, now)?,
        Expiry::CancelGrace => cancel::record(&mut draft, None)?,
    }
    Ok(draft.finish(None))
}

/// Which alarm has to have rung.
fn alarm(what: Expiry) -> Alarm {
    match what {
        Expiry::Lease | Expiry::DeadSession => Alarm::Lease,
        Expiry::StartToClose => Alarm::StartToClose,
        Expiry::Heartbeat => Alarm::Heartbeat,
        Expiry::ScheduleToStart => Alarm::ScheduleToStart,
        Expiry::Deadline => Alarm::Deadline,
        Expiry::CancelGrace => Alarm::CancelGrace,
    }
}

fn actor(what: Expiry) -> Actor {
    match what {
        Expiry::Lease | Expiry::DeadSession => Actor::Recovery,
        Expiry::StartToClose
        | Expiry::Heartbeat
        | Expiry::ScheduleToStart
        | Expiry::Deadline
        | Expiry::CancelGrace => Actor::Scheduler,
    }
}

/// The worker is gone. What ran is interrupted, and given up if that happened too often.
fn lease_lost(draft: &mut Draft<'_>, cause: Cause, now: Timestamp) -> Result<(), Refusal> {
    let job = draft.job();
    if job.cancel.is_some() {
        return cancel::record(draft, None);
    }
    if job.state == State::Dispatched {
        return draft.record(cause, Fact::Plain);
    }
    // From the second interruption on it is claimed alone, so that only it can be to blame.
    draft.record(cause, Fact::Interrupted { counted: true })?;
    let job = draft.job();
    if job.interruptions >= job.spec.max_interruptions {
        let message = format!("interrupted {} times without progress", job.interruptions);
        let failure = Failure::own(INTERRUPTED_TOO_OFTEN, &message);
        bury::record(draft, Cause::RecoveryAbort, failure, None, now)?;
    }
    Ok(())
}

/// The deadline passed. Where there is a way to the dead letters it is taken; else it is a cancel.
fn deadline_passed(draft: &mut Draft<'_>, now: Timestamp) -> Result<(), Refusal> {
    let failure = Failure::own(DEADLINE_EXCEEDED, "the job's deadline passed");
    match draft.job().state {
        State::Running | State::Interrupted | State::Waiting => {
            bury::record(draft, Cause::DeadlinePassed, failure, None, now)
        }
        _ => run_out(draft, Cause::DeadlinePassed, failure),
    }
}

fn run_out(draft: &mut Draft<'_>, cause: Cause, failure: Failure) -> Result<(), Refusal> {
    draft.record(cause, Fact::Cancelled { reason: None, failure: Some(failure), settle: None })
}
