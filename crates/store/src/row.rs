//! What of a job is kept as JSON in its row: what is rarely asked for, and what rarely happens.
//!
//! Both are null for the usual job, so the usual row is small. Fields are never renamed, and a new field
//! is left out when it says nothing: rows of older versions stay readable.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Actor, Cause, Digest, Failure, Job, JobId, LimitKey, RetryPolicy, Spec, State, Tag, Timestamp,
    UniqueKey,
    job::{CancelRequest, Origin, ScheduleType, Settled, Wait, Wakeup},
    ledger::LedgerHead,
    ops::{NewJob, Outcome},
    time::as_ms,
};

/// The part of a spec that is rarely asked for.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule_type: Option<ScheduleType>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scheduled_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heartbeat_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule_to_start_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) retry: Option<RetryPolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_interruptions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) limit_key: Option<LimitKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unique_key: Option<UniqueKey>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tags: Vec<Tag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<JobId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
}

impl Options {
    pub(crate) fn of(spec: &Spec) -> Option<Self> {
        let usual = NewJob::MAX_INTERRUPTIONS_DEFAULT;
        let options = Options {
            schedule_type: Some(spec.schedule_type).filter(|it| *it != ScheduleType::At),
            scheduled_at: spec.scheduled_at,
            timeout_ms: spec.timeout.map(as_ms),
            heartbeat_timeout_ms: spec.heartbeat_timeout.map(as_ms),
            schedule_to_start_ms: spec.schedule_to_start.map(as_ms),
            deadline_at: spec.deadline_at,
            retry: Some(spec.retry).filter(|it| *it != RetryPolicy::default()),
            max_interruptions: Some(spec.max_interruptions).filter(|it| *it != usual),
            limit_key: spec.limit_key.clone(),
            unique_key: spec.unique_key.clone(),
            tags: spec.tags.clone(),
            parent: spec.parent,
            origin: Some(spec.origin).filter(|it| *it != Origin::Enqueued),
        };
        (options != Options::default()).then_some(options)
    }
}

/// What rarely happens to a job.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Rest {
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) interruptions: u32,
    /// When the attempt and the execution started, if the row does not imply it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) starts: Option<Starts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) wait: Option<Wait>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) woken: Option<Wakeup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cancel: Option<Cancel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Failure>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_by: Option<Cause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remaining: Option<Digest>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) settles: Vec<Settled>,
    /// The settle that ended the job well, if it said more than that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) settle: Option<Digest>,
    /// How much stands in its ledger, if there is anything.
    #[serde(skip_serializing_if = "LedgerHead::is_empty")]
    pub(crate) ledger: LedgerHead,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// When the current attempt and the current execution started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Starts(Option<Timestamp>, Option<Timestamp>);

impl Starts {
    /// What holds for a job that was claimed once: all began when the job did.
    fn implied(job: &Job) -> Self {
        Self(job.started_at, job.started_at.filter(|_| job.state == State::Running))
    }
}

/// The settle of a handler that ended well and gave nothing back, which most do.
static PLAIN_SETTLE: LazyLock<Digest> =
    LazyLock::new(|| Outcome::Succeeded { result: None }.digest());

/// A cancel request.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cancel {
    by: Actor,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reason: Option<String>,
    grace_until: Timestamp,
}

impl Rest {
    /// What rarely happens; none if nothing of it did.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        let well = ended_well(job.state);
        let starts = Starts(job.attempt_started_at, job.execution_started_at);
        let settle = job.settles.last().filter(|_| well.is_some()).map(|settled| settled.digest);
        let older = job.settles.len() - usize::from(settle.is_some());
        let rest = Rest {
            interruptions: job.interruptions,
            starts: Some(starts).filter(|starts| *starts != Starts::implied(job)),
            wait: job.wait.clone(),
            woken: job.woken,
            cancel: job.cancel.as_ref().map(|request| Cancel {
                by: request.by.clone(),
                reason: request.reason.clone(),
                grace_until: request.grace_until,
            }),
            error: job.error.clone(),
            ended_by: job.ended_by.filter(|_| well.is_none()),
            result: job.result,
            remaining: job.remaining,
            settles: job.settles[..older].to_vec(),
            settle: settle.filter(|settle| *settle != *PLAIN_SETTLE),
            ledger: job.ledger,
        };
        (rest != Rest::default()).then_some(rest)
    }

    /// Puts it back into the job, whose other fields are there.
    pub(crate) fn into_job(self, job: &mut Job) {
        job.interruptions = self.interruptions;
        let starts = self.starts.unwrap_or_else(|| Starts::implied(job));
        (job.attempt_started_at, job.execution_started_at) = (starts.0, starts.1);
        job.wait = self.wait;
        job.woken = self.woken;
        job.cancel = self.cancel.map(|request| CancelRequest {
            by: request.by,
            reason: request.reason,
            grace_until: request.grace_until,
        });
        job.error = self.error;
        job.ledger = self.ledger;
        let well = ended_well(job.state);
        job.ended_by = well.or(self.ended_by);
        (job.result, job.remaining) = (self.result, self.remaining);
        job.settles = self.settles;
        if well.is_some() {
            let digest = self.settle.unwrap_or(*PLAIN_SETTLE);
            let (epoch, state) = (job.epoch, job.state);
            job.settles.push(Settled { epoch, digest, state, next_retry_at: None });
        }
    }
}

/// The cause of a good end, which the state alone tells.
fn ended_well(state: State) -> Option<Cause> {
    match state {
        State::Succeeded => Some(Cause::Completed),
        State::Partial => Some(Cause::CompletedInPart),
        _ => None,
    }
}
