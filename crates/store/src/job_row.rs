//! A job as its row has it, whichever database keeps the row.
//!
//! A backend reads the columns and knows which group and session the numbers mean; what the columns mean
//! together is said here, once.

use std::{sync::Arc, time::Duration};

use serde::de::DeserializeOwned;
use windlass_kernel::{
    Digest, DlqId, Epoch, IdempotencyKey, IdempotencyScope, Job, JobId, Kind, Queue, Refusal,
    Session, Spec, State, TaskId, TenantId, Timestamp, TraceId,
    job::{Origin, Priority, Rank, ScheduleType},
    ledger::LedgerHead,
    ops::NewJob,
    timer,
};

use crate::{
    packed::{History, LeaseBytes},
    row::{Options, Rest},
};

/// The columns of a job that are read back, but for the numbers of its group and its session.
pub(crate) struct JobRow<'a> {
    pub(crate) id: JobId,
    pub(crate) tenant: &'a str,
    pub(crate) state: &'a str,
    pub(crate) rank: i64,
    pub(crate) version: u64,
    pub(crate) attempt: u32,
    pub(crate) retry_count: u32,
    pub(crate) max_retries: u32,
    pub(crate) epoch: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) next_retry_at: Option<Timestamp>,
    pub(crate) lease: Option<&'a [u8]>,
    pub(crate) task_id: Option<TaskId>,
    /// The scope and the key that the caller gave.
    pub(crate) key: Option<(&'a str, &'a str)>,
    pub(crate) payload_digest: [u8; 32],
    pub(crate) trace: TraceName<'a>,
    pub(crate) options: Option<&'a str>,
    pub(crate) rest: Option<&'a str>,
    pub(crate) history: &'a [u8],
}

/// A trace in a row: the chance that ours was made from, or a caller's trace as text.
pub(crate) enum TraceName<'a> {
    Made(u128),
    Given(&'a str),
}

impl TraceName<'_> {
    pub(crate) fn of(job: &Job) -> TraceName<'_> {
        let trace = &job.spec.trace_id;
        match trace.random_of(job.id) {
            Some(random) => TraceName::Made(random),
            None => TraceName::Given(trace.as_str()),
        }
    }
}

/// Jobs that are offered to workers together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct GroupName {
    pub(crate) queue: Queue,
    pub(crate) tenant: TenantId,
    pub(crate) kind: Kind,
    pub(crate) isolated: bool,
}

impl GroupName {
    pub(crate) fn of(job: &Job) -> Self {
        let spec = &job.spec;
        Self {
            queue: spec.queue.clone(),
            tenant: spec.tenant.clone(),
            kind: spec.kind.clone(),
            isolated: job.is_isolated(),
        }
    }

    pub(crate) fn is_of(&self, job: &Job) -> bool {
        let spec = &job.spec;
        (&self.queue, &self.tenant, &self.kind) == (&spec.queue, &spec.tenant, &spec.kind)
            && self.isolated == job.is_isolated()
    }
}

/// A column that cannot be what it should be, and why.
pub(crate) struct Unreadable {
    pub(crate) column: &'static str,
    pub(crate) why: String,
}

fn unreadable(column: &'static str, why: impl Into<String>) -> Unreadable {
    Unreadable { column, why: why.into() }
}

/// A job as if nobody held it, what its row says of its lease, and where its history is.
pub(crate) struct Unpacked {
    pub(crate) job: Job,
    pub(crate) lease: LeaseBytes,
    pub(crate) history: History,
}

impl JobRow<'_> {
    /// The job of a row that is in this group.
    pub(crate) fn unpack(&self, group: &GroupName) -> Result<Unpacked, Unreadable> {
        let state = State::parse(self.state);
        let state =
            state.ok_or_else(|| unreadable("state", format!("{} is no state", self.state)))?;
        let lease = LeaseBytes::parse(self.lease);
        let lease = lease.ok_or_else(|| unreadable("lease", "it is no lease"))?;
        let mut job = Job {
            id: self.id,
            spec: Arc::new(self.spec(group)?),
            state,
            version: self.version,
            attempt: self.attempt,
            retry_count: self.retry_count,
            epoch: Epoch::new(self.epoch),
            claim_id: lease.claim_id,
            interruptions: 0,
            started_at: self.started_at,
            attempt_started_at: None,
            execution_started_at: None,
            updated_at: self.updated_at,
            finished_at: state.is_end().then_some(self.updated_at),
            next_retry_at: self.next_retry_at,
            wait: None,
            woken: None,
            cancel: None,
            error: None,
            ended_by: None,
            dlq_id: (state == State::Failed).then(|| DlqId::of_job(self.id)),
            result: None,
            remaining: None,
            settles: Vec::new(),
            lease: None,
            lease_count: lease.count,
            ledger: LedgerHead::default(),
        };
        let rest: Rest = json_or_default("rest", self.rest)?;
        rest.into_job(&mut job);
        let history = History::parse(self.history);
        let history = history.ok_or_else(|| unreadable("history", "it is no history"))?;
        Ok(Unpacked { job, lease, history })
    }

    /// What was asked for.
    fn spec(&self, group: &GroupName) -> Result<Spec, Unreadable> {
        if self.tenant != group.tenant.as_str() {
            return Err(unreadable("tenant", format!("its group belongs to {}", group.tenant)));
        }
        let options: Options = json_or_default("options", self.options)?;
        let id = self.id;
        let due_at = options.scheduled_at.unwrap_or(self.created_at).max(self.created_at);
        let priority = Priority::of_rank(Rank(self.rank), due_at);
        let task_given = self.task_id.is_some();
        let task_id = self.task_id.clone().unwrap_or_else(|| TaskId::of_job(id));
        let (idempotency_scope, idempotency_key) = match self.key {
            None if task_given => (IdempotencyScope::own_id(), IdempotencyKey::of_job(id)),
            None => (IdempotencyScope::own_id(), IdempotencyKey::of_own_task(&task_id)),
            Some((scope, key)) => {
                (name("idempotency_scope", scope)?, name("idempotency_key", key)?)
            }
        };
        Ok(Spec {
            tenant: group.tenant.clone(),
            task_id,
            task_given,
            kind: group.kind.clone(),
            queue: group.queue.clone(),
            priority: priority.ok_or_else(|| unreadable("rank", "it is no rank"))?,
            schedule_type: options.schedule_type.unwrap_or(ScheduleType::At),
            scheduled_at: options.scheduled_at,
            due_at,
            timeout: options.timeout_ms.map(Duration::from_millis),
            heartbeat_timeout: options.heartbeat_timeout_ms.map(Duration::from_millis),
            schedule_to_start: options.schedule_to_start_ms.map(Duration::from_millis),
            deadline_at: options.deadline_at,
            max_retries: self.max_retries,
            retry: options.retry.unwrap_or_default(),
            max_interruptions: options
                .max_interruptions
                .unwrap_or(NewJob::MAX_INTERRUPTIONS_DEFAULT),
            idempotency_scope,
            idempotency_key,
            payload_digest: Digest::from_bytes(self.payload_digest),
            limit_key: options.limit_key,
            unique_key: options.unique_key,
            tags: options.tags,
            trace_id: match self.trace {
                TraceName::Made(random) => TraceId::for_run(id, random),
                TraceName::Given(trace) => name("trace_id", trace)?,
            },
            parent: options.parent,
            origin: options.origin.unwrap_or(Origin::Enqueued),
            created_at: self.created_at,
        })
    }
}

impl Unpacked {
    /// The job as it is held under this session, and the renewals of the session that its row counts.
    pub(crate) fn held(&mut self, session: &Session) -> Result<u64, Unreadable> {
        let held = self.lease.held.as_ref();
        let held = held.ok_or_else(|| unreadable("lease", "there is no lease"))?;
        self.job.lease = Some(held.lease(session.worker.clone()));
        let mut seen = held.seen;
        with_session(&mut self.job, &mut seen, session);
        Ok(seen)
    }
}

/// What its session adds to a lease: a later end, and renewals that are not counted yet.
pub(crate) fn with_session(job: &mut Job, seen: &mut u64, session: &Session) {
    if let Some(lease) = &mut job.lease {
        lease.until = lease.until.max(session.until);
    }
    job.lease_count += session.renewals.saturating_sub(*seen);
    *seen = session.renewals;
}

/// Can a job in this state be claimed at once?
pub(crate) fn is_ready(state: State) -> bool {
    matches!(state, State::Queued | State::Interrupted)
}

/// When the next alarm of the job itself rings. Its lease rings with the session that holds it.
pub(crate) fn timer_at(job: &Job) -> Option<Timestamp> {
    timer::next_but_lease(job).map(|(at, _)| at)
}

/// A value as it stands in a column.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("rows are plain data")
}

fn json_or_default<T: DeserializeOwned + Default>(
    column: &'static str,
    text: Option<&str>,
) -> Result<T, Unreadable> {
    let read = text.map(serde_json::from_str).transpose();
    Ok(read.map_err(|error| unreadable(column, error.to_string()))?.unwrap_or_default())
}

fn name<T: std::str::FromStr<Err = Refusal>>(
    column: &'static str,
    text: &str,
) -> Result<T, Unreadable> {
    text.parse().map_err(|why: Refusal| unreadable(column, why.to_string()))
}
