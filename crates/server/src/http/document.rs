//! A job as this API shows it: one flat document, with everything that is known.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use windlass_kernel::{
    Actor, Cause, Class, DlqId, Epoch, Event, Fact, Failure, Job, JobId, State, Timestamp, TraceId,
    job::{Origin, ScheduleType, Wait, Wakeup},
    time::as_ms,
};

/// A job.
#[derive(Serialize, JsonSchema)]
pub(crate) struct JobDocument {
    /// Its id.
    #[schemars(with = "String")]
    pub(crate) job_id: JobId,
    /// Who it belongs to.
    pub(crate) tenant: String,
    /// What it is a run of.
    pub(crate) task_id: String,
    /// Which handler it needs.
    pub(crate) kind: String,
    /// Where it waits.
    pub(crate) queue: String,
    /// How urgent it is: smaller is sooner.
    pub(crate) priority: i16,
    /// Where it is in its life.
    #[schemars(with = "String")]
    pub(crate) state: State,
    /// Which execution of its task it is, from 1.
    pub(crate) attempt: u32,
    /// Retries used so far.
    pub(crate) retry_count: u32,
    /// How many times it is tried again.
    pub(crate) max_retries: u32,
    /// How long it waits in between.
    pub(crate) retry: RetryDocument,
    /// How it came to have its time: at, cron or every.
    #[schemars(with = "String")]
    pub(crate) schedule_type: ScheduleType,
    /// The time that was asked for.
    #[schemars(with = "Option<String>")]
    pub(crate) scheduled_at: Option<Timestamp>,
    /// When it may first be claimed.
    #[schemars(with = "String")]
    pub(crate) due_at: Timestamp,
    /// How long one execution may take.
    pub(crate) timeout_ms: Option<u64>,
    /// How long a handler may be silent.
    pub(crate) heartbeat_timeout_ms: Option<u64>,
    /// How long it may wait for its first start.
    pub(crate) schedule_to_start_ms: Option<u64>,
    /// When it has to be at an end.
    #[schemars(with = "Option<String>")]
    pub(crate) deadline_at: Option<Timestamp>,
    /// The name of the request that made it.
    pub(crate) idempotency_key: String,
    /// Where that name is unique.
    pub(crate) idempotency_scope: String,
    /// What it has in common with others, for limits and turns.
    pub(crate) limit_key: Option<String>,
    /// What no other job that is not at its end has.
    pub(crate) unique_key: Option<String>,
    /// Labels.
    pub(crate) tags: Vec<String>,
    /// The trace it belongs to.
    pub(crate) trace_id: String,
    /// The job that waits for its end.
    #[schemars(with = "Option<String>")]
    pub(crate) parent_job_id: Option<JobId>,
    /// The dead letter that it was made from.
    #[schemars(with = "Option<String>")]
    pub(crate) requeued_from_dlq_id: Option<DlqId>,
    /// The job whose task it runs again.
    #[schemars(with = "Option<String>")]
    pub(crate) rerun_of: Option<JobId>,
    /// The fencing token: it grows with each claim.
    #[schemars(with = "u64")]
    pub(crate) epoch: Epoch,
    /// The worker that holds it.
    pub(crate) lease_owner: Option<String>,
    /// When its lease runs out.
    #[schemars(with = "Option<String>")]
    pub(crate) leased_until: Option<Timestamp>,
    /// Claims and renewals over its whole life.
    pub(crate) lease_count: u64,
    /// How often it was cut off since its last progress.
    pub(crate) interruptions: u32,
    /// When it is tried again.
    #[schemars(with = "Option<String>")]
    pub(crate) next_retry_at: Option<Timestamp>,
    /// What it waits for.
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) wait: Option<Wait>,
    /// How its last wait ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) woken: Option<Wakeup>,
    /// Did somebody ask to cancel it?
    pub(crate) cancel_requested: bool,
    /// Its last failure.
    pub(crate) error: Option<FailureDocument>,
    /// Its own dead letter.
    #[schemars(with = "Option<String>")]
    pub(crate) dlq_id: Option<DlqId>,
    /// The number of its last event.
    pub(crate) version: u64,
    /// When it was created.
    #[schemars(with = "String")]
    pub(crate) created_at: Timestamp,
    /// When it last changed.
    #[schemars(with = "String")]
    pub(crate) updated_at: Timestamp,
    /// When it first started.
    #[schemars(with = "Option<String>")]
    pub(crate) started_at: Option<Timestamp>,
    /// When it came to its end.
    #[schemars(with = "Option<String>")]
    pub(crate) finished_at: Option<Timestamp>,
    /// What the handler gets, byte for byte; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) payload: Option<Box<RawValue>>,
    /// What came out, byte for byte; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) result: Option<Box<RawValue>>,
    /// What is left to do, byte for byte; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) remaining: Option<Box<RawValue>>,
    /// How far its handler has come, in its own words; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    pub(crate) progress: Option<Box<RawValue>>,
    /// The epoch that said so; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>")]
    pub(crate) progress_epoch: Option<Epoch>,
    /// When it said so; not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) progress_at: Option<Timestamp>,
}

/// How long a job waits between retries.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RetryDocument {
    /// Before the first retry.
    pub(crate) base_ms: u64,
    /// At the most.
    pub(crate) max_backoff_ms: u64,
}

/// What went wrong.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FailureDocument {
    /// A short name for programs.
    pub(crate) code: String,
    /// A sentence for people.
    pub(crate) message: String,
    /// What sort of failure it is.
    #[schemars(with = "String")]
    pub(crate) class: Class,
    /// May trying again help?
    pub(crate) retryable: bool,
}

impl From<&Failure> for FailureDocument {
    fn from(failure: &Failure) -> Self {
        Self {
            code: failure.code.clone(),
            message: failure.message.clone(),
            class: failure.class,
            retryable: failure.retryable,
        }
    }
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
            retry: RetryDocument {
                base_ms: as_ms(spec.retry.base),
                max_backoff_ms: as_ms(spec.retry.max_backoff),
            },
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

/// Stored JSON as it stands.
pub(crate) fn raw(text: String) -> Option<Box<RawValue>> {
    RawValue::from_string(text).ok()
}

/// One fact of a job's history.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventDocument {
    /// The job it speaks of.
    #[schemars(with = "String")]
    pub(crate) job_id: JobId,
    /// Its place in the job's history, from 1.
    pub(crate) number: u64,
    /// When it happened.
    #[schemars(with = "String")]
    pub(crate) at: Timestamp,
    /// Why.
    #[schemars(with = "String")]
    pub(crate) cause: Cause,
    /// The state before; none at creation.
    #[schemars(with = "Option<String>")]
    pub(crate) from: Option<State>,
    /// The state after.
    #[schemars(with = "String")]
    pub(crate) to: State,
    /// The attempt it belongs to.
    pub(crate) attempt: u32,
    /// Retries used so far.
    pub(crate) retry_count: u32,
    /// The last epoch granted.
    #[schemars(with = "u64")]
    pub(crate) epoch: Epoch,
    /// Who did it.
    #[schemars(with = "String")]
    pub(crate) actor: Actor,
    /// The trace of the request behind it, or else of its job; null, if the job is no longer kept.
    pub(crate) trace_id: Option<String>,
    /// What else is worth knowing.
    #[schemars(with = "serde_json::Value")]
    pub(crate) fact: Fact,
}

impl EventDocument {
    /// The document of `event`, of a job with this trace.
    pub(crate) fn new(event: Event, of_job: Option<&TraceId>) -> Self {
        let trace_id = event.trace_id.as_ref().or(of_job);
        Self {
            trace_id: trace_id.map(ToString::to_string),
            job_id: event.job_id,
            number: event.number,
            at: event.at,
            cause: event.cause,
            from: event.from,
            to: event.to,
            attempt: event.attempt,
            retry_count: event.retry_count,
            epoch: event.epoch,
            actor: event.actor,
            fact: event.fact,
        }
    }
}

/// What a search found, or a part of it. A part is full, or the last one, unless it says that it is incomplete.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Found<T> {
    /// What was found.
    pub(crate) items: Vec<T>,
    /// Where the next part begins: send it as `cursor`. Null at the end.
    pub(crate) next: Option<String>,
    /// The search stopped at its time limit before this part was full. There may be more from `next` on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) incomplete: Option<bool>,
}

/// A list, or a part of one.
#[derive(Serialize, JsonSchema)]
pub(crate) struct List<T> {
    /// What was found.
    pub(crate) items: Vec<T>,
    /// Where the next part begins: send it as `cursor`. Null at the end.
    pub(crate) next: Option<String>,
}
