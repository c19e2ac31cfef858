//! Documents as they go over the line, and what they are here.
//!
//! A document of a job does not tell everything that a row knows. What it leaves out is neutral here: `claim_id`,
//! `attempt_started_at`, `execution_started_at`, `ended_by`, the digests of result and remaining, the settles on record,
//! and who asked to cancel it, why, and for how long it has. `max_interruptions` is the usual one; the digest of a
//! payload is right where the payload is told, and that of nothing in lists.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Actor, Answer, Approval, Attempt, AttemptState, Cause, DeadLetter, Digest, DlqId, Epoch, Event,
    Fact, Failure, IdempotencyKey, IdempotencyScope, Job, JobId, Kind, Lease, LetterState,
    LimitKey, Payload, Principal, Queue, Refusal, RetryPolicy, Spec, State, Tag, TaskId, TenantId,
    Timestamp, TraceId, UniqueKey, WorkerId,
    job::{CancelRequest, Origin, Priority, ScheduleType, Wait, Wakeup},
    letter::ApprovalStep,
    ops::{Enqueue, Idempotency, NewJob},
    time::duration_ms_option,
};
use windlass_store::read;

/// Who the server takes us for.
#[derive(Deserialize)]
pub(super) struct Me {
    pub(super) tenant: String,
    pub(super) now: Timestamp,
}

/// A list, or a part of one.
#[derive(Deserialize)]
pub(super) struct List<T> {
    pub(super) items: Vec<T>,
    pub(super) next: Option<String>,
    #[serde(default)]
    pub(super) incomplete: bool,
}

/// Dead letters by cause.
#[derive(Deserialize)]
pub(super) struct GroupsDocument {
    items: Vec<GroupDocument>,
    looked_at: u64,
    more: bool,
}

#[derive(Deserialize)]
struct GroupDocument {
    code: String,
    message: String,
    count: u64,
    first_at: Timestamp,
    last_at: Timestamp,
    example: DlqId,
}

impl GroupsDocument {
    pub(super) fn into_groups(self) -> read::LetterGroups {
        let group = |it: GroupDocument| read::LetterGroup {
            code: it.code,
            cause: it.message,
            count: it.count,
            first_at: it.first_at,
            last_at: it.last_at,
            newest: it.example,
        };
        let groups = self.items.into_iter().map(group).collect();
        read::LetterGroups { groups, letters: self.looked_at, more: self.more }
    }
}

/// A job that is asked for.
#[derive(Serialize)]
pub(super) struct NewJobDocument<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    kind: &'a Kind,
    payload: &'a RawValue,
    queue: &'a Queue,
    priority: Priority,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<Timestamp>,
    #[serde(rename = "timeout_ms", with = "duration_ms_option")]
    timeout: Option<Duration>,
    #[serde(rename = "heartbeat_timeout_ms", with = "duration_ms_option")]
    heartbeat_timeout: Option<Duration>,
    #[serde(rename = "schedule_to_start_ms", with = "duration_ms_option")]
    schedule_to_start: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_at: Option<Timestamp>,
    max_retries: u32,
    retry: RetryPolicy,
    max_interruptions: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<&'a IdempotencyKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_scope: Option<&'a IdempotencyScope>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_key: Option<&'a LimitKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_key: Option<&'a UniqueKey>,
    tags: &'a [Tag],
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_job_id: Option<JobId>,
}

impl<'a> NewJobDocument<'a> {
    /// The job of an op, under its id. It is in the trace that the kernel would give it, whoever sends it.
    pub(super) fn of(op: &'a Enqueue) -> Result<Self, Refusal> {
        let trace = op.new.trace_id.clone().or_else(|| op.by.trace_id.clone());
        let trace = trace.unwrap_or_else(|| TraceId::made_for(op.job_id, op.random));
        Ok(Self { job_id: Some(op.job_id), trace_id: Some(trace), ..Self::new(&op.new)? })
    }

    /// What is asked for, without an id.
    pub(super) fn new(new: &'a NewJob) -> Result<Self, Refusal> {
        let (idempotency_scope, idempotency_key) = match &new.idempotency {
            Idempotency::OwnId => (None, None),
            Idempotency::Key { scope, key } => (Some(scope), Some(key)),
            Idempotency::Run { .. } | Idempotency::Slot { .. } | Idempotency::Server { .. } => {
                return Err(Refusal::invalid("idempotency_key", "cannot be sent to a server"));
            }
        };
        if new.task.as_ref().is_some_and(|task| !task.may_rerun) {
            return Err(Refusal::invalid(
                "task_id",
                "of a task that runs once is not for a server",
            ));
        }
        Ok(Self {
            job_id: None,
            kind: &new.kind,
            payload: raw(&new.payload)?,
            queue: &new.queue,
            priority: new.priority,
            scheduled_at: new.scheduled_at,
            timeout: new.timeout,
            heartbeat_timeout: new.heartbeat_timeout,
            schedule_to_start: new.schedule_to_start,
            deadline_at: new.deadline_at,
            max_retries: new.max_retries,
            retry: new.retry,
            max_interruptions: new.max_interruptions,
            idempotency_key,
            idempotency_scope,
            task_id: new.task.as_ref().map(|task| &task.task_id),
            limit_key: new.limit_key.as_ref(),
            unique_key: new.unique_key.as_ref(),
            tags: &new.tags,
            trace_id: new.trace_id.clone(),
            parent_job_id: new.parent,
        })
    }
}

/// JSON that passes as it is.
pub(super) fn raw(payload: &Payload) -> Result<&RawValue, Refusal> {
    serde_json::from_str(payload.as_str())
        .map_err(|why| Refusal::invalid("payload", why.to_string()))
}

/// A job as it stands.
#[derive(Deserialize)]
pub(super) struct JobDocument {
    pub(super) job_id: JobId,
    tenant: TenantId,
    task_id: TaskId,
    kind: Kind,
    queue: Queue,
    priority: Priority,
    state: State,
    attempt: u32,
    retry_count: u32,
    max_retries: u32,
    retry: RetryPolicy,
    schedule_type: ScheduleType,
    scheduled_at: Option<Timestamp>,
    due_at: Timestamp,
    #[serde(rename = "timeout_ms", with = "duration_ms_option", default)]
    timeout: Option<Duration>,
    #[serde(rename = "heartbeat_timeout_ms", with = "duration_ms_option", default)]
    heartbeat_timeout: Option<Duration>,
    #[serde(rename = "schedule_to_start_ms", with = "duration_ms_option", default)]
    schedule_to_start: Option<Duration>,
    deadline_at: Option<Timestamp>,
    idempotency_key: IdempotencyKey,
    idempotency_scope: IdempotencyScope,
    limit_key: Option<LimitKey>,
    unique_key: Option<UniqueKey>,
    tags: Vec<Tag>,
    trace_id: TraceId,
    parent_job_id: Option<JobId>,
    requeued_from_dlq_id: Option<DlqId>,
    rerun_of: Option<JobId>,
    epoch: Epoch,
    lease_owner: Option<String>,
    leased_until: Option<Timestamp>,
    lease_count: u64,
    interruptions: u32,
    next_retry_at: Option<Timestamp>,
    wait: Option<Wait>,
    woken: Option<Wakeup>,
    cancel_requested: bool,
    error: Option<Failure>,
    dlq_id: Option<DlqId>,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    // A null that is told is none here: whoever wants the text knows that the job has one.
    payload: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    remaining: Option<Box<RawValue>>,
    progress: Option<Box<RawValue>>,
    progress_epoch: Option<Epoch>,
    progress_at: Option<Timestamp>,
}

impl JobDocument {
    /// Whose job it is.
    pub(super) fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Its payload, byte for byte.
    pub(super) fn payload(&self) -> String {
        text(self.payload.as_deref()).unwrap_or_else(|| "null".to_owned())
    }

    /// What its last attempt that gave something back gave back.
    pub(super) fn output(&self) -> Option<read::Output> {
        let (result, remaining) = (text(self.result.as_deref()), text(self.remaining.as_deref()));
        let is_there = result.is_some() || remaining.is_some();
        let output = read::Output { attempt: self.attempt, result, remaining, stats: None };
        is_there.then_some(output)
    }

    /// How far its handler said it had come.
    pub(super) fn progress(&self) -> Option<read::Progress> {
        let value = text(self.progress.as_deref()).unwrap_or_else(|| "null".to_owned());
        Some(read::Progress { epoch: self.progress_epoch?, at: self.progress_at?, value })
    }

    /// What an op on it is told, if this is how it stands after it.
    pub(super) fn answer(&self) -> Answer {
        Answer {
            job_id: self.job_id,
            state: self.state,
            recorded: false,
            epoch: self.epoch,
            leased_until: self.leased_until,
            next_retry_at: self.next_retry_at,
            dlq_id: self.dlq_id,
            cancel_requested: self.cancel_requested,
        }
    }

    /// The job, with what is not told left neutral.
    pub(super) fn into_job(self) -> Result<Job, Refusal> {
        let lease = match (&self.lease_owner, self.leased_until) {
            (Some(owner), Some(until)) => Some(Lease {
                worker: worker(owner)?,
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
        let spec = Spec {
            tenant: self.tenant,
            task_given: self.task_id != TaskId::of_job(self.job_id),
            task_id: self.task_id,
            kind: self.kind,
            queue: self.queue,
            priority: self.priority,
            schedule_type: self.schedule_type,
            scheduled_at: self.scheduled_at,
            due_at: self.due_at,
            timeout: self.timeout,
            heartbeat_timeout: self.heartbeat_timeout,
            schedule_to_start: self.schedule_to_start,
            deadline_at: self.deadline_at,
            max_retries: self.max_retries,
            retry: self.retry,
            max_interruptions: NewJob::MAX_INTERRUPTIONS_DEFAULT,
            idempotency_scope: self.idempotency_scope,
            idempotency_key: self.idempotency_key,
            payload_digest: digest(self.payload.as_deref()),
            limit_key: self.limit_key,
            unique_key: self.unique_key,
            tags: self.tags,
            trace_id: self.trace_id,
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
            error: self.error,
            ended_by: None,
            dlq_id: self.dlq_id,
            result: None,
            remaining: None,
            settles: Vec::new(),
            lease,
            lease_count: self.lease_count,
        })
    }
}

fn text(raw: Option<&RawValue>) -> Option<String> {
    raw.map(|raw| raw.get().to_owned())
}

fn digest(payload: Option<&RawValue>) -> Digest {
    let parsed = payload.map(|text| Payload::parse(text.get(), usize::MAX));
    parsed.and_then(Result::ok).map_or_else(|| Digest::of(""), |payload| payload.digest())
}

/// A worker as it calls itself. A server puts the tenant before the names of workers that are not its own.
pub(super) fn worker(name: &str) -> Result<WorkerId, Refusal> {
    WorkerId::new(name.rsplit('/').next().unwrap_or(name))
}

/// What a claim got.
#[derive(Deserialize)]
pub(super) struct Leases {
    pub(super) leases: Vec<LeaseDocument>,
    pub(super) again_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) repeated: bool,
}

/// A job that a claim got.
#[derive(Deserialize)]
pub(super) struct LeaseDocument {
    pub(super) job: JobDocument,
}

/// What became of each op of a batch.
#[derive(Deserialize)]
pub(super) struct Results {
    pub(super) results: Vec<OpResult>,
}

/// What became of one op.
#[derive(Deserialize)]
pub(super) struct OpResult {
    pub(super) job_id: Option<JobId>,
    pub(super) ok: bool,
    pub(super) code: Option<String>,
    pub(super) detail: Option<String>,
    #[serde(default)]
    pub(super) idempotent_hit: Option<bool>,
    pub(super) state: Option<State>,
    pub(super) leased_until: Option<Timestamp>,
    pub(super) next_retry_at: Option<Timestamp>,
    pub(super) dlq_id: Option<DlqId>,
    pub(super) cancel_requested: Option<bool>,
}

/// One fact of a job's history.
#[derive(Deserialize)]
pub(super) struct EventDocument {
    job_id: JobId,
    pub(super) number: u64,
    at: Timestamp,
    cause: Cause,
    from: Option<State>,
    to: State,
    attempt: u32,
    retry_count: u32,
    epoch: Epoch,
    actor: Actor,
    trace_id: Option<TraceId>,
    fact: Fact,
}

impl EventDocument {
    /// The event; `started` says whether the job had ever started before it.
    pub(super) fn into_event(self, started: bool) -> Event {
        Event {
            job_id: self.job_id,
            number: self.number,
            at: self.at,
            cause: self.cause,
            from: self.from,
            to: self.to,
            attempt: self.attempt,
            retry_count: self.retry_count,
            epoch: self.epoch,
            started,
            actor: self.actor,
            trace_id: self.trace_id,
            fact: self.fact,
        }
    }
}

/// One execution of a task.
#[derive(Deserialize)]
pub(super) struct AttemptDocument {
    attempt: u32,
    state: AttemptState,
    epoch: Epoch,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
    error: Option<Failure>,
    stats: Option<Box<RawValue>>,
}

impl AttemptDocument {
    pub(super) fn into_attempt(self, job: &Job) -> Attempt {
        let stats = self.stats.map(|text| Payload::parse(text.get(), usize::MAX));
        Attempt {
            job_id: job.id,
            tenant: job.spec.tenant.clone(),
            task_id: job.spec.task_id.clone(),
            attempt: self.attempt,
            state: self.state,
            epoch: self.epoch,
            started_at: self.started_at,
            finished_at: self.finished_at,
            failure: self.error,
            stats: stats.and_then(Result::ok),
        }
    }
}

/// A dead letter.
#[derive(Deserialize)]
pub(super) struct LetterDocument {
    dlq_id: DlqId,
    pub(super) tenant: TenantId,
    job_id: JobId,
    state: LetterState,
    why: Cause,
    error: Failure,
    began_in: State,
    attempt: u32,
    epoch: Epoch,
    created_at: Timestamp,
    requeued_as: Option<JobId>,
    discard_requested_by: Option<Principal>,
    discard_reason: Option<String>,
    closed_at: Option<Timestamp>,
    pub(super) job: Option<JobDocument>,
    approvals: Option<Vec<ApprovalDocument>>,
}

/// One person's say on a dead letter.
#[derive(Deserialize)]
struct ApprovalDocument {
    principal: Principal,
    step: ApprovalStep,
    reason: String,
    at: Timestamp,
}

impl LetterDocument {
    pub(super) fn into_approvals(self) -> Vec<Approval> {
        let dlq_id = self.dlq_id;
        let approvals = self.approvals.unwrap_or_default().into_iter();
        approvals
            .map(|it| Approval {
                dlq_id,
                principal: it.principal,
                step: it.step,
                reason: it.reason,
                at: it.at,
            })
            .collect()
    }

    pub(super) fn into_letter(self) -> DeadLetter {
        DeadLetter {
            id: self.dlq_id,
            tenant: self.tenant,
            job_id: self.job_id,
            state: self.state,
            why: self.why,
            failure: self.error,
            began_in: self.began_in,
            attempt: self.attempt,
            epoch: self.epoch,
            payload_digest: digest(self.job.as_ref().and_then(|job| job.payload.as_deref())),
            created_at: self.created_at,
            requeued_as: self.requeued_as,
            discard_requested_by: self.discard_requested_by,
            discard_reason: self.discard_reason,
            closed_at: self.closed_at,
        }
    }
}

/// The job that took over from a dead letter.
#[derive(Deserialize)]
pub(super) struct Requeued {
    pub(super) job: JobDocument,
}

/// Something that was noted.
#[derive(Deserialize)]
pub(super) struct FeedDocument {
    number: u64,
    tenant: TenantId,
    at: Timestamp,
    payload: Box<RawValue>,
}

impl From<FeedDocument> for read::FeedEvent {
    fn from(told: FeedDocument) -> Self {
        let FeedDocument { number, tenant, at, payload } = told;
        Self { number, tenant, at, line: payload.get().to_owned() }
    }
}

/// A queue.
#[derive(Deserialize)]
pub(super) struct QueueDocument {
    pub(super) queue: Queue,
    pub(super) counts: std::collections::BTreeMap<String, u64>,
    pub(super) oldest_ready_at: Option<Timestamp>,
}

/// A worker.
#[derive(Deserialize)]
pub(super) struct WorkerDocument {
    worker_id: String,
    leased_until: Option<Timestamp>,
    renewals: u64,
    held: u64,
}

impl WorkerDocument {
    /// The session of the worker; none, if it never had a lease.
    pub(super) fn into_view(self) -> Option<Result<read::SessionView, Refusal>> {
        let Self { worker_id, leased_until, renewals, held } = self;
        let lapses_at = leased_until?;
        let view = |worker| read::SessionView { worker, lapses_at, renewals, held };
        Some(worker(&worker_id).map(view))
    }
}
