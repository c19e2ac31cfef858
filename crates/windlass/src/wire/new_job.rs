//! A job that is asked for: the body of an enqueue, both ways.
//!
//! A new field that callers may set is added here, to the struct and to both conversions, and in `job.rs` if it is shown.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    IdempotencyKey, IdempotencyScope, JobId, Kind, LimitKey, Payload, Queue, Refusal, RetryPolicy,
    Tag, TaskId, Timestamp, TraceId, UniqueKey,
    job::Priority,
    ops::{Enqueue, Idempotency, NewJob, NewTask},
    time::duration_ms_option,
};

use super::{JobDocument, raw_payload};

/// A job that is asked for. What is left out is as usual; a field that we do not know is refused.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJobBody {
    /// Which handler it needs; `default`, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub kind: Option<Kind>,
    /// What the handler gets, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub payload: Option<Box<RawValue>>,
    /// Where it waits; `default`, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub queue: Option<Queue>,
    /// How urgent it is, from -1000 to 1000: smaller is sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<i16>"))]
    pub priority: Option<Priority>,
    /// When it becomes due; at once, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub scheduled_at: Option<Timestamp>,
    /// How long one execution may take.
    #[serde(rename = "timeout_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub timeout: Option<Duration>,
    /// How long a handler may be silent.
    #[serde(rename = "heartbeat_timeout_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub heartbeat_timeout: Option<Duration>,
    /// How long it may wait for its first start.
    #[serde(rename = "schedule_to_start_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub schedule_to_start: Option<Duration>,
    /// When it has to be at an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub deadline_at: Option<Timestamp>,
    /// How many times it is tried again; 3, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_retries: Option<u32>,
    /// How long it waits in between: `base_ms` and `max_backoff_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<RetrySchema>"))]
    pub retry: Option<RetryPolicy>,
    /// The name of this request: sent again, it creates nothing. The header `Idempotency-Key` says the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub idempotency_key: Option<IdempotencyKey>,
    /// Where the key is unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub idempotency_scope: Option<IdempotencyScope>,
    /// What it is a run of. A task that ran before, and is at its end, runs again; if its last job failed, this one takes
    /// over from the dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub task_id: Option<TaskId>,
    /// What it has in common with others: limits and turns can be by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub limit_key: Option<LimitKey>,
    /// What no other job that is not at its end may have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub unique_key: Option<UniqueKey>,
    /// Labels for filters.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub tags: Vec<Tag>,
    /// The trace it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub trace_id: Option<TraceId>,
    /// The job that is its parent: it is cancelled with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub parent_job_id: Option<JobId>,
    /// How many times its worker may vanish without progress before it is given up; 5, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_interruptions: Option<u32>,
    /// The id of the new job, for a caller that makes it before its first try, `job_` and 26 digits as in our ids: sent
    /// again, it gives the same job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub job_id: Option<JobId>,
}

/// How long a job waits before it is tried again; the wait doubles with each retry.
#[cfg(feature = "schema")]
#[derive(schemars::JsonSchema)]
#[schemars(rename = "RetryPolicy", deny_unknown_fields)]
#[expect(dead_code, reason = "it says what RetryPolicy reads")]
struct RetrySchema {
    /// The first wait [default: 1000].
    base_ms: Option<u64>,
    /// No wait grows beyond this, jitter aside [default: 30000].
    max_backoff_ms: Option<u64>,
}

impl NewJobBody {
    /// The body that asks for this job, without an id. A server takes no key that it gives out itself.
    pub fn new(new: &NewJob) -> Result<Self, Refusal> {
        let (idempotency_scope, idempotency_key) = match &new.idempotency {
            Idempotency::OwnId => (None, None),
            Idempotency::Key { scope, key } => (Some(scope.clone()), Some(key.clone())),
            Idempotency::Run { .. } | Idempotency::Slot { .. } | Idempotency::Server { .. } => {
                return Err(Refusal::invalid("idempotency_key", "cannot be sent to a server"));
            }
        };
        if new.task.as_ref().is_some_and(|task| !task.may_rerun) {
            let why = "of a task that runs once is not for a server";
            return Err(Refusal::invalid("task_id", why));
        }
        Ok(Self {
            kind: Some(new.kind.clone()),
            payload: Some(raw_payload(&new.payload)?),
            queue: Some(new.queue.clone()),
            priority: Some(new.priority),
            scheduled_at: new.scheduled_at,
            timeout: new.timeout,
            heartbeat_timeout: new.heartbeat_timeout,
            schedule_to_start: new.schedule_to_start,
            deadline_at: new.deadline_at,
            max_retries: Some(new.max_retries),
            retry: Some(new.retry),
            idempotency_key,
            idempotency_scope,
            task_id: new.task.as_ref().map(|task| task.task_id.clone()),
            limit_key: new.limit_key.clone(),
            unique_key: new.unique_key.clone(),
            tags: new.tags.clone(),
            trace_id: new.trace_id.clone(),
            parent_job_id: new.parent,
            max_interruptions: Some(new.max_interruptions),
            job_id: None,
        })
    }

    /// The body of an op, under its id. The job is in the trace that the kernel would give it, whoever sends it.
    pub fn of(op: &Enqueue) -> Result<Self, Refusal> {
        let trace = op.new.trace_id.clone().or_else(|| op.by.trace_id.clone());
        let trace = trace.unwrap_or_else(|| TraceId::made_for(op.job_id, op.random));
        Ok(Self { job_id: Some(op.job_id), trace_id: Some(trace), ..Self::new(&op.new)? })
    }

    /// The job that is asked for.
    pub fn into_new(self) -> Result<NewJob, Refusal> {
        let payload = self.payload.as_ref().map_or("null", |payload| payload.get());
        let payload = Payload::parse(payload, Payload::MAX_BYTES_DEFAULT)?;
        let kind = self.kind.map_or_else(|| Kind::new(NewJob::DEFAULT_NAME), Ok)?;
        let usual = NewJob::new(kind, payload);
        let idempotency = match (self.idempotency_key, self.idempotency_scope) {
            (Some(key), scope) => {
                let scope = scope.unwrap_or_else(IdempotencyScope::default_scope);
                Idempotency::Key { scope, key }
            }
            (None, Some(_)) => {
                return Err(Refusal::invalid("idempotency_key", "is needed with a scope"));
            }
            (None, None) => Idempotency::OwnId,
        };
        Ok(NewJob {
            queue: self.queue.unwrap_or(usual.queue),
            priority: self.priority.unwrap_or(usual.priority),
            scheduled_at: self.scheduled_at,
            timeout: self.timeout,
            heartbeat_timeout: self.heartbeat_timeout,
            schedule_to_start: self.schedule_to_start,
            deadline_at: self.deadline_at,
            max_retries: self.max_retries.unwrap_or(usual.max_retries),
            retry: self.retry.unwrap_or(usual.retry),
            idempotency,
            task: self.task_id.map(|task_id| NewTask { task_id, may_rerun: true }),
            limit_key: self.limit_key,
            unique_key: self.unique_key,
            tags: self.tags,
            trace_id: self.trace_id,
            parent: self.parent_job_id,
            max_interruptions: self.max_interruptions.unwrap_or(usual.max_interruptions),
            ..usual
        })
    }
}

/// What became of a request for a job. The job can be in the words of a contract.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "EnqueuedDocument", description = "What became of a request for a job.")
)]
pub struct EnqueuedDocument<J = JobDocument> {
    /// Was it there already? Then nothing was created.
    pub idempotent_hit: bool,
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "JobDocument"))]
    pub job: J,
}
