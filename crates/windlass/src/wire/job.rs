//! A job as the API shows it: one flat document, with everything that is known.
//!
//! It does not tell everything that a row knows. What it leaves out is neutral in the job that is read from it:
//! `claim_id`, `attempt_started_at`, `execution_started_at`, `ended_by`, the digests of result and remaining, the settles
//! on record, and who asked to cancel it, why, and for how long it has. `max_interruptions` is the default; the digest of
//! a payload is right where the payload is told, and that of nothing in lists.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Actor, Answer, Digest, DlqId, Epoch, Job, JobId, Lease, Payload, Refusal, RetryPolicy, Spec,
    State, TaskId, Timestamp, WorkerId,
    job::{CancelRequest, Origin, Priority, ScheduleType, Wait, Wakeup},
    ledger::LedgerHead,
    ops::NewJob,
    time::as_ms,
};
use windlass_store::read;

use super::FailureDocument;

/// A job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobDocument {
    /// Its id.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// Who it belongs to.
    pub tenant: String,
    /// What it is a run of.
    pub task_id: String,
    /// Which handler it needs.
    pub kind: String,
    /// Where it waits.
    pub queue: String,
    /// How urgent it is: smaller is sooner.
    pub priority: i16,
    /// Where it is in its life.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub state: State,
    /// Which execution of its task it is, from 1.
    pub attempt: u32,
    /// Retries used so far.
    pub retry_count: u32,
    /// How many times it is tried again.
    pub max_retries: u32,
    /// How long it waits in between.
    pub retry: RetryDocument,
    /// How it came to have its time: at, cron or every.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub schedule_type: ScheduleType,
    /// The time that was asked for.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub scheduled_at: Option<Timestamp>,
    /// When it may first be claimed.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub due_at: Timestamp,
    /// How long one execution may take.
    pub timeout_ms: Option<u64>,
    /// How long a handler may be silent.
    pub heartbeat_timeout_ms: Option<u64>,
    /// How long it may wait for its first start.
    pub schedule_to_start_ms: Option<u64>,
    /// When it has to be at an end.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub deadline_at: Option<Timestamp>,
    /// The name of the request that made it.
    pub idempotency_key: String,
    /// Where that name is unique.
    pub idempotency_scope: String,
    /// What it has in common with others, for limits and turns.
    pub limit_key: Option<String>,
    /// What no other job that is not at its end has.
    pub unique_key: Option<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// The trace it belongs to.
    pub trace_id: String,
    /// The job that waits for its end.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub parent_job_id: Option<JobId>,
    /// The dead letter that it was made from.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub requeued_from_dlq_id: Option<DlqId>,
    /// The job whose task it runs again.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub rerun_of: Option<JobId>,
    /// The fencing token: it grows with each claim.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The worker that holds it.
    pub lease_owner: Option<String>,
    /// When its lease runs out.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub leased_until: Option<Timestamp>,
    /// Claims and renewals over its whole life.
    pub lease_count: u64,
    /// How often it was cut off since its last progress.
    pub interruptions: u32,
    /// When it is tried again.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub next_retry_at: Option<Timestamp>,
    /// What it waits for.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub wait: Option<Wait>,
    /// How its last wait ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub woken: Option<Wakeup>,
    /// Did somebody ask to cancel it?
    pub cancel_requested: bool,
    /// Its last failure.
    pub error: Option<FailureDocument>,
    /// Its own dead letter.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub dlq_id: Option<DlqId>,
    /// The number of its last event.
    pub version: u64,
    /// When it was created.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub created_at: Timestamp,
    /// When it last changed.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub updated_at: Timestamp,
    /// When it first started.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub started_at: Option<Timestamp>,
    /// When it came to its end.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub finished_at: Option<Timestamp>,
    /// What the handler gets, byte for byte; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// What came out, byte for byte; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub result: Option<Box<RawValue>>,
    /// What is left to do, byte for byte; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub remaining: Option<Box<RawValue>>,
    /// How far its handler has come, in its own words; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub progress: Option<Box<RawValue>>,
    /// The epoch that said so; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub progress_epoch: Option<Epoch>,
    /// When it said so; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub progress_at: Option<Timestamp>,
}

/// How long a job waits between retries.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RetryDocument {
    /// Before the first retry.
    pub base_ms: u64,
    /// At the most.
    pub max_backoff_ms: u64,
}

impl From<&Job> for JobDocument {
    fn from(job: &Job) -> Self {
        let spec = &job.spec;
        let (requeued_from_dlq_id, rerun_of) = match spec.origin {
            Origin::Enqueued => (None, None),
            Origin::Requeued(letter) => (Some(letter), Some(letter.job_id())),
            Origin::Rerun(earlier) => (None, Some(earlier)),
        };
        Self {
            job_id: job.id,
            tenant: spec.tenant.to_string(),
            task_id: spec.task_id.to_string(),
            kind: spec.kind.to_string(),
            queue: spec.queue.to_string(),
            priority: spec.priority.0,
            state: job.state,
            attempt: job.attempt,
            retry_count: job.retry_count,
            max_retries: spec.max_retries,
            retry: spec.retry.into(),
            schedule_type: spec.schedule_type,
            scheduled_at: spec.scheduled_at,
            due_at: spec.due_at,
            timeout_ms: spec.timeout.map(as_ms),
            heartbeat_timeout_ms: spec.heartbeat_timeout.map(as_ms),
            schedule_to_start_ms: spec.schedule_to_start.map(as_ms),
            deadline_at: spec.deadline_at,
            idempotency_key: spec.idempotency_key.to_string(),
            idempotency_scope: spec.idempotency_scope.to_string(),
            limit_key: spec.limit_key.as_ref().map(ToString::to_string),
            unique_key: spec.unique_key.as_ref().map(ToString::to_string),
            tags: spec.tags.iter().map(ToString::to_string).collect(),
            trace_id: spec.trace_id.to_string(),
            parent_job_id: spec.parent,
            requeued_from_dlq_id,
            rerun_of,
            epoch: job.epoch,
            lease_owner: job.lease.as_ref().map(|lease| lease.worker.to_string()),
            leased_until: job.lease.as_ref().map(|lease| lease.until),
            lease_count: job.lease_count,
            interruptions: job.interruptions,
            next_retry_at: job.next_retry_at,
            wait: job.wait.clone(),
            woken: job.woken,
            cancel_requested: job.cancel.is_some() && !job.state.is_end(),
            error: job.error.as_ref().map(FailureDocument::from),
            dlq_id: job.dlq_id,
            version: job.version,
            created_at: spec.created_at,
            updated_at: job.updated_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
            payload: None,
            result: None,
            remaining: None,
            progress: None,
            progress_epoch: None,
            progress_at: None,
        }
    }
}

impl From<RetryPolicy> for RetryDocument {
    fn from(policy: RetryPolicy) -> Self {
        Self { base_ms: as_ms(policy.base), max_backoff_ms: as_ms(policy.max_backoff) }
    }
}

impl From<RetryDocument> for RetryPolicy {
    fn from(RetryDocument { base_ms, max_backoff_ms }: RetryDocument) -> Self {
        let (base, max_backoff) =
            (Duration::from_millis(base_ms), Duration::from_millis(max_backoff_ms));
        Self { base, max_backoff }
    }
}

impl JobDocument {
    /// Its payload, byte for byte.
    pub fn payload(&self) -> String {
        text(self.payload.as_deref()).unwrap_or_else(|| "null".to_owned())
    }

    /// What its last attempt that gave something back gave back.
    pub fn output(&self) -> Option<read::Output> {
        let (result, remaining) = (text(self.result.as_deref()), text(self.remaining.as_deref()));
        let is_there = result.is_some() || remaining.is_some();
        let output = read::Output { attempt: self.attempt, result, remaining, stats: None };
        is_there.then_some(output)
    }

    /// How far its handler said it had come.
    pub fn progress(&self) -> Option<read::Progress> {
        let value = text(self.progress.as_deref()).unwrap_or_else(|| "null".to_owned());
        Some(read::Progress { epoch: self.progress_epoch?, at: self.progress_at?, value })
    }

    /// What an op on it is told, if this is how it stands after it.
    pub fn answer(&self) -> Answer {
        Answer {
            job_id: self.job_id,
            state: self.state,
            recorded: false,
            epoch: self.epoch,
            leased_until: self.leased_until,
            next_retry_at: self.next_retry_at,
            dlq_id: self.dlq_id,
            cancel_requested: self.cancel_requested,
            steps: Vec::new(),
            delivered: false,
        }
    }

    /// The job, with what is not told left neutral.
    pub fn into_job(self) -> Result<Job, Refusal> {
        let lease = match (&self.lease_owner, self.leased_until) {
            (Some(owner), Some(until)) => Some(Lease {
                worker: own_name(owner)?,
                until,
                alone: self.interruptions >= Job::ISOLATED_FROM,
                beat_at: self.updated_at,
            }),
            _ => None,
        };
        let cancel = self.cancel_requested.then_some(CancelRequest {
            by: Actor::Scheduler,
            reason: None,
            grace_until: self.updated_at,
        });
        let origin = match (self.requeued_from_dlq_id, self.rerun_of) {
            (Some(letter), _) => Origin::Requeued(letter),
            (None, Some(earlier)) => Origin::Rerun(earlier),
            (None, None) => Origin::Enqueued,
        };
        let task_id: TaskId = self.task_id.try_into()?;
        let spec = Spec {
            tenant: self.tenant.try_into()?,
            task_given: task_id != TaskId::of_job(self.job_id),
            task_id,
            kind: self.kind.try_into()?,
            queue: self.queue.try_into()?,
            priority: Priority(self.priority),
            schedule_type: self.schedule_type,
            scheduled_at: self.scheduled_at,
            due_at: self.due_at,
            timeout: self.timeout_ms.map(Duration::from_millis),
            heartbeat_timeout: self.heartbeat_timeout_ms.map(Duration::from_millis),
            schedule_to_start: self.schedule_to_start_ms.map(Duration::from_millis),
            deadline_at: self.deadline_at,
            max_retries: self.max_retries,
            retry: self.retry.into(),
            max_interruptions: NewJob::MAX_INTERRUPTIONS_DEFAULT,
            idempotency_scope: self.idempotency_scope.try_into()?,
            idempotency_key: self.idempotency_key.try_into()?,
            payload_digest: digest(self.payload.as_deref()),
            limit_key: self.limit_key.map(TryInto::try_into).transpose()?,
            unique_key: self.unique_key.map(TryInto::try_into).transpose()?,
            tags: self.tags.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?,
            trace_id: self.trace_id.try_into()?,
            parent: self.parent_job_id,
            origin,
            created_at: self.created_at,
        };
        Ok(Job {
            id: self.job_id,
            spec: Arc::new(spec),
            state: self.state,
            version: self.version,
            attempt: self.attempt,
            retry_count: self.retry_count,
            epoch: self.epoch,
            claim_id: None,
            interruptions: self.interruptions,
            started_at: self.started_at,
            attempt_started_at: None,
            execution_started_at: None,
            updated_at: self.updated_at,
            finished_at: self.finished_at,
            next_retry_at: self.next_retry_at,
            wait: self.wait,
            woken: self.woken,
            cancel,
            error: self.error.map(Into::into),
            ended_by: None,
            dlq_id: self.dlq_id,
            result: None,
            remaining: None,
            settles: Vec::new(),
            lease,
            ledger: LedgerHead::default(),
            lease_count: self.lease_count,
        })
    }
}

// A null that is told is none here: whoever wants the text knows that the job has one.
fn text(raw: Option<&RawValue>) -> Option<String> {
    raw.map(|raw| raw.get().to_owned())
}

/// The digest of a payload, if it is told.
pub(super) fn digest(payload: Option<&RawValue>) -> Digest {
    let parsed = payload.map(|text| Payload::parse(text.get(), usize::MAX));
    parsed.and_then(Result::ok).map_or_else(|| Digest::of(""), |payload| payload.digest())
}

/// A worker as it calls itself. A server puts the tenant before the names of workers that are not its own.
pub(super) fn own_name(worker: &str) -> Result<WorkerId, Refusal> {
    WorkerId::new(worker.rsplit('/').next().unwrap_or(worker))
}
