//! What time does to a job: which alarm is next, and the op that it asks for.
//!
//! A timer acts on the version it saw, never on an id alone: if the job changed meanwhile, the op is
//! refused as [`crate::Refusal::Outdated`] and nothing happens.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Jitter, Job, JobId, Op, State, Timestamp,
    machine::words,
    ops::{Expire, Expiry, Promote, PromoteWhen, Wake, WakeBy},
};

words!(
    /// Something that happens to a job because time passes.
    Alarm {
        /// A scheduled job becomes due.
        Due = "due",
        /// A wait is over.
        Wait = "wait",
        /// A lease runs out.
        Lease = "lease",
        /// An execution took too long.
        StartToClose = "start_to_close",
        /// A handler was silent for too long.
        Heartbeat = "heartbeat",
        /// A job waited too long for its first start.
        ScheduleToStart = "schedule_to_start",
        /// The job's deadline passes.
        Deadline = "deadline",
        /// The time to clean up after a cancel request is over.
        CancelGrace = "cancel_grace",
    }
);

/// When this alarm rings for `job`; never, if it is not set.
pub fn rings_at(job: &Job, alarm: Alarm) -> Option<Timestamp> {
    if job.state.is_end() {
        return None;
    }
    let spec = &job.spec;
    match alarm {
        Alarm::Due => (job.state == State::Scheduled).then_some(spec.due_at),
        Alarm::Wait => job.wait.as_ref()?.until,
        Alarm::Lease => job.lease.as_ref().map(|lease| lease.until),
        Alarm::StartToClose => Some(job.execution_started_at?.plus(spec.timeout?)),
        Alarm::Heartbeat => {
            job.execution_started_at?;
            Some(job.lease.as_ref()?.beat_at.plus(spec.heartbeat_timeout?))
        }
        Alarm::ScheduleToStart => {
            let waits =
                matches!(job.state, State::Queued | State::Dispatched) && !job.has_started();
            waits.then_some(spec.due_at.plus(spec.schedule_to_start?))
        }
        Alarm::Deadline => spec.deadline_at,
        Alarm::CancelGrace => job.cancel.as_ref().map(|request| request.grace_until),
    }
}

/// The alarm that rings first, and when. Of two at the same time the more final one counts.
pub fn next(job: &Job) -> Option<(Timestamp, Alarm)> {
    first(job, |_| true)
}

/// The same without the lease, for a store in which leases ring with the session that holds them.
pub fn next_but_lease(job: &Job) -> Option<(Timestamp, Alarm)> {
    first(job, |alarm| alarm != Alarm::Lease)
}

fn first(job: &Job, counts: impl Fn(Alarm) -> bool) -> Option<(Timestamp, Alarm)> {
    let alarms = Alarm::ALL.iter().rev().filter(|alarm| counts(**alarm));
    alarms.filter_map(|alarm| Some((rings_at(job, *alarm)?, *alarm))).min_by_key(|(at, _)| *at)
}

/// The op that the alarm asks for.
pub fn op(job: &Job, alarm: Alarm, jitter: Jitter) -> Op {
    op_for(job.id, job.version, alarm, jitter)
}

/// The op that the alarm asks for, of a job that was seen at this version.
pub fn op_for(job_id: JobId, version: u64, alarm: Alarm, jitter: Jitter) -> Op {
    let expire = |what| Op::Expire(Expire { job_id, version, what, jitter });
    match alarm {
        Alarm::Due => Op::Promote(Promote { job_id, when: PromoteWhen::Due { version } }),
        Alarm::Wait => Op::Wake(Wake { job_id, by: WakeBy::Time { version } }),
        Alarm::Lease => expire(Expiry::Lease),
        Alarm::StartToClose => expire(Expiry::StartToClose),
        Alarm::Heartbeat => expire(Expiry::Heartbeat),
        Alarm::ScheduleToStart => expire(Expiry::ScheduleToStart),
        Alarm::Deadline => expire(Expiry::Deadline),
        Alarm::CancelGrace => expire(Expiry::CancelGrace),
    }
}
