//! Enqueue: a new job, once for each idempotency key.
//!
//! A known key with the same important fields is a hit and creates nothing; with other fields it is a
//! conflict that names them. An enqueue without a key has the id of its job as its key, so that sending
//! it again is safe too.
//!
//! A new job of a task whose last job failed runs that work again: it takes over from the dead letter, as a requeue does.

use std::{sync::Arc, time::Duration};

use crate::footprint::{Footprint, Makes};
use crate::{
    By, Cause, DeadLetter, Digest, Event, Fact, IdempotencyKey, IdempotencyScope, Job, JobId, Kind,
    LimitKey, NewPayload, Payload, Queue, Refusal, RetryPolicy, Spec, Tag, Task, TaskId, TenantId,
    Timestamp, TraceId, Transition, UniqueKey,
    evolve::evolve,
    job::{Origin, Priority, ScheduleType},
    machine,
    ops::{Current, requeue},
    own_names::{check_not_own, is_own},
    plain::check_plain,
    retry::MAX_RETRIES_DEFAULT,
    time::is_whole_ms,
    transition::task_of,
};

/// A new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueue {
    /// The id of the new job, made before the first try.
    pub job_id: JobId,
    /// Who it belongs to.
    pub tenant: TenantId,
    /// What is asked for.
    pub new: Box<NewJob>,
    /// Chance for the trace id, if none was given.
    pub random: u128,
    /// Who asks.
    pub by: By,
}

/// What is asked for: all that a caller can say about a new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Which handler it needs.
    pub kind: Kind,
    /// What the handler gets.
    pub payload: Payload,
    /// Where it waits.
    pub queue: Queue,
    /// How urgent it is.
    pub priority: Priority,
    /// How it came to have its time.
    pub schedule_type: ScheduleType,
    /// When it becomes due; at once, if nothing is said.
    pub scheduled_at: Option<Timestamp>,
    /// How long one execution may take.
    pub timeout: Option<Duration>,
    /// How long a handler may be silent.
    pub heartbeat_timeout: Option<Duration>,
    /// How long it may wait for its first start.
    pub schedule_to_start: Option<Duration>,
    /// When it has to be at an end.
    pub deadline_at: Option<Timestamp>,
    /// How many times it is tried again.
    pub max_retries: u32,
    /// How long it waits in between.
    pub retry: RetryPolicy,
    /// The interruption at which recovery gives up.
    pub max_interruptions: u32,
    /// How the request is known again.
    pub idempotency: Idempotency,
    /// The task that it runs, if it is not a task of its own.
    pub task: Option<NewTask>,
    /// What it has in common with others: limits and turns can be by key.
    pub limit_key: Option<LimitKey>,
    /// What no other job that is not at its end may have: while one has it, asking again gives that one. A re-run
    /// or a requeue, which a person asks for, does without.
    pub unique_key: Option<UniqueKey>,
    /// Labels for filters.
    pub tags: Vec<Tag>,
    /// The trace it belongs to.
    pub trace_id: Option<TraceId>,
    /// The job that waits for its end.
    pub parent: Option<JobId>,
}

/// How a request is known again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Idempotency {
    /// By the id of its job.
    OwnId,
    /// By the caller's key: other fields under the same key are a conflict.
    Key {
        /// Where the key is unique.
        scope: IdempotencyScope,
        /// The key.
        key: IdempotencyKey,
    },
    /// By the key of contract `runs`: a known key gives its run, whatever else was sent.
    Run {
        /// The key.
        key: IdempotencyKey,
    },
    /// By the slot of a schedule that it is made for: a slot has one job, whatever else was asked for.
    Slot {
        /// The schedule and the slot.
        key: IdempotencyKey,
    },
    /// By a key of the server, for a job that is its own: kind and queue begin with `windlass.`. A known key gives its
    /// job, whatever else was asked for. No caller can say so.
    Server {
        /// The key.
        key: IdempotencyKey,
    },
}

/// The task that a new job runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    /// Its id.
    pub task_id: TaskId,
    /// May it be a task that ran before? If not, a known task is `TASK_DUPLICATE`.
    pub may_rerun: bool,
}

impl NewJob {
    /// The queue and the kind of a job that names none.
    pub const DEFAULT_NAME: &'static str = "default";
    /// The most retries.
    pub const MAX_RETRIES: u32 = 10_000;
    /// The interruption at which recovery gives up, unless the job says otherwise.
    pub const MAX_INTERRUPTIONS_DEFAULT: u32 = 5;
    /// The longest of all times a job can have.
    pub const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);
    /// The most tags.
    pub const TAGS_MAX: usize = 32;

    /// A job of this kind, with everything else as usual.
    pub fn new(kind: Kind, payload: Payload) -> Self {
        Self {
            kind,
            payload,
            queue: Queue::new(Self::DEFAULT_NAME).expect("the default name is a name"),
            priority: Priority::default(),
            schedule_type: ScheduleType::At,
            scheduled_at: None,
            timeout: None,
            heartbeat_timeout: None,
            schedule_to_start: None,
            deadline_at: None,
            max_retries: MAX_RETRIES_DEFAULT,
            retry: RetryPolicy::default(),
            max_interruptions: Self::MAX_INTERRUPTIONS_DEFAULT,
            idempotency: Idempotency::OwnId,
            task: None,
            limit_key: None,
            unique_key: None,
            tags: Vec::new(),
            trace_id: None,
            parent: None,
        }
    }

    /// Refuses what nobody can mean.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), Refusal> {
        if self.priority.0.unsigned_abs() > Priority::MAX.unsigned_abs() {
            return Err(Refusal::invalid("priority", "must lie between -1000 and 1000"));
        }
        if self.max_retries > Self::MAX_RETRIES {
            return Err(Refusal::invalid("max_retries", "must be at most 10000"));
        }
        if self.max_interruptions == 0 {
            return Err(Refusal::invalid("max_interruptions", "must be at least 1"));
        }
        if self.tags.len() > Self::TAGS_MAX {
            return Err(Refusal::invalid("tags", "must be at most 32"));
        }
        check_duration("timeout_ms", self.timeout)?;
        check_duration("heartbeat_timeout_ms", self.heartbeat_timeout)?;
        check_duration("schedule_to_start_ms", self.schedule_to_start)?;
        self.retry.check()?;
        if self.deadline_at.is_some_and(|at| at <= self.scheduled_at.unwrap_or(now).max(now)) {
            return Err(Refusal::invalid("deadline_at", "must lie after the time the job is due"));
        }
        self.check_names()
    }

    /// Names show what they are, and those of the server's own are for the jobs that it makes itself.
    fn check_names(&self) -> Result<(), Refusal> {
        check_plain("kind", self.kind.as_str())?;
        check_plain("queue", self.queue.as_str())?;
        check_plain("task_id", self.task.as_ref().map_or("", |task| task.task_id.as_str()))?;
        check_plain("limit_key", self.limit_key.as_ref().map_or("", LimitKey::as_str))?;
        check_plain("unique_key", self.unique_key.as_ref().map_or("", UniqueKey::as_str))?;
        check_plain("trace_id", self.trace_id.as_ref().map_or("", TraceId::as_str))?;
        for tag in &self.tags {
            check_plain("tags", tag.as_str())?;
        }
        if let Idempotency::Key { scope, key } = &self.idempotency {
            check_plain("idempotency_scope", scope.as_str())?;
            check_plain("idempotency_key", key.as_str())?;
        }
        if let Idempotency::Run { key } = &self.idempotency {
            check_plain("idempotency_key", key.as_str())?;
        }
        match &self.idempotency {
            Idempotency::Server { .. } if is_own(self.kind.as_str()) => return Ok(()),
            Idempotency::Server { .. } => {
                return Err(Refusal::invalid("kind", "must begin with windlass. here"));
            }
            Idempotency::Key { scope, .. } if scope.is_reserved() => {
                return Err(Refusal::invalid(
                    "idempotency_scope",
                    "must not begin with _ or windlass.",
                ));
            }
            // A key that was never filled in would make one job of all requests. Jobs that have one keep it.
            Idempotency::Key { key, .. } | Idempotency::Run { key }
                if key.as_str().trim().is_empty() =>
            {
                return Err(Refusal::invalid("idempotency_key", "must not be blank"));
            }
            Idempotency::OwnId | Idempotency::Key { .. } => {}
            Idempotency::Run { .. } | Idempotency::Slot { .. } => {}
        }
        check_not_own("kind", self.kind.as_str())?;
        check_not_own("queue", self.queue.as_str())
    }
}

fn check_duration(field: &'static str, duration: Option<Duration>) -> Result<(), Refusal> {
    match duration {
        Some(Duration::ZERO) => Err(Refusal::invalid(field, "must be at least 1 ms")),
        Some(odd) if !is_whole_ms(odd) => {
            Err(Refusal::invalid(field, "must be a whole number of milliseconds"))
        }
        Some(long) if long > NewJob::DURATION_MAX => {
            Err(Refusal::invalid(field, "must be at most 366 days"))
        }
        _ => Ok(()),
    }
}

impl Enqueue {
    /// Refuses what nobody can mean, whatever is stored. Deciding asks the same, with the time it has then.
    pub fn check(&self, now: Timestamp) -> Result<(), Refusal> {
        self.new.check(now)
    }

    /// Where its key is unique.
    pub fn scope(&self) -> IdempotencyScope {
        match &self.new.idempotency {
            Idempotency::OwnId => IdempotencyScope::own_id(),
            Idempotency::Key { scope, .. } => scope.clone(),
            Idempotency::Run { .. } => IdempotencyScope::runs(),
            Idempotency::Slot { .. } => IdempotencyScope::slots(),
            Idempotency::Server { .. } => IdempotencyScope::server(),
        }
    }

    /// Its key.
    pub fn key(&self) -> IdempotencyKey {
        match &self.new.idempotency {
            Idempotency::OwnId => IdempotencyKey::of_job(self.job_id),
            Idempotency::Key { key, .. } | Idempotency::Run { key } => key.clone(),
            Idempotency::Slot { key } | Idempotency::Server { key } => key.clone(),
        }
    }

    /// The trace of the job: its own, or that of the request, or a new one.
    pub fn trace_id(&self) -> TraceId {
        let given = self.new.trace_id.as_ref().or(self.by.trace_id.as_ref());
        given.cloned().unwrap_or_else(|| TraceId::made_for(self.job_id, self.random))
    }

    /// What it asks for, with everything that was left out filled in.
    fn spec(&self, now: Timestamp) -> Spec {
        let new = &self.new;
        let task_id = new.task.as_ref().map(|task| task.task_id.clone());
        Spec {
            tenant: self.tenant.clone(),
            task_given: task_id.is_some(),
            task_id: task_id.unwrap_or_else(|| TaskId::of_job(self.job_id)),
            kind: new.kind.clone(),
            queue: new.queue.clone(),
            priority: new.priority,
            schedule_type: new.schedule_type,
            scheduled_at: new.scheduled_at,
            due_at: new.scheduled_at.unwrap_or(now).max(now),
            timeout: new.timeout,
            heartbeat_timeout: new.heartbeat_timeout,
            schedule_to_start: new.schedule_to_start,
            deadline_at: new.deadline_at,
            max_retries: new.max_retries,
            retry: new.retry,
            max_interruptions: new.max_interruptions,
            idempotency_scope: self.scope(),
            idempotency_key: self.key(),
            payload_digest: new.payload.digest(),
            limit_key: new.limit_key.clone(),
            unique_key: new.unique_key.clone(),
            tags: new.tags.clone(),
            trace_id: self.trace_id(),
            parent: new.parent,
            origin: Origin::Enqueued,
            created_at: now,
        }
    }
}

impl Enqueue {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let footprint = Footprint::of_job(self.job_id).making(Makes::New(self));
        let footprint = footprint.carrying(self.new.payload.as_str().len());
        Footprint { relative: self.new.parent, ..footprint }
    }
}

pub(crate) fn decide(
    current: &Current<'_>,
    op: &Enqueue,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    // A known key comes first: sent again after its deadline, a request still gets its answer.
    if let Some(known) = current.by_key {
        return known_key(known, op);
    }
    op.check(now)?;
    if let Some(active) = current.by_unique {
        return Ok(Transition::recorded(active));
    }
    if current.new.is_some() {
        return Err(Refusal::JobExists { job_id: op.job_id });
    }
    check_drained(current)?;
    let attempt = match (&op.new.task, current.task) {
        (Some(asked), Some(known)) => next_attempt(asked, known)?,
        (Some(asked), None) => first_attempt(asked, op.job_id)?,
        (None, _) => 1,
    };
    check_parent(current, op)?;
    let payload = NewPayload::Given(op.new.payload.clone());
    let mut spec = op.spec(now);
    let letter = open_letter(current);
    if let Some(letter) = letter {
        spec.origin = Origin::Requeued(letter.id);
    }
    let mut transition = create(op.job_id, Arc::new(spec), attempt, payload, &op.by, now);
    if let Some(letter) = letter {
        requeue::take_over(&mut transition, letter, &op.by, now);
    }
    Ok(transition)
}

/// The letter of the task's last job, if nobody has decided about it. That of a job of the server's own is left to those
/// who look after it: a caller that names it as a task does not do its work.
fn open_letter<'a>(current: &Current<'a>) -> Option<&'a DeadLetter> {
    current.failed.filter(|failed| !is_own(failed.spec.kind.as_str()))?;
    current.letter.filter(|letter| !letter.state.is_closed())
}

/// What is drained takes nothing new in.
pub(crate) fn check_drained(current: &Current<'_>) -> Result<(), Refusal> {
    match current.drained_by {
        Some(rule) => Err(Refusal::Draining { rule: rule.clone() }),
        None => Ok(()),
    }
}

/// A child needs a parent that still wants it: whoever is to be cancelled has told its children already.
fn check_parent(current: &Current<'_>, op: &Enqueue) -> Result<(), Refusal> {
    if op.new.parent.is_none() {
        return Ok(());
    }
    let parent = current.parent.filter(|parent| parent.spec.tenant == op.tenant);
    let parent = parent.ok_or(Refusal::NotFound { what: "parent" })?;
    if parent.state.is_end() {
        return Err(Refusal::invalid("parent", "is a job that is at its end"));
    }
    if parent.cancel.is_some() {
        return Err(Refusal::CancelRequested);
    }
    Ok(())
}

/// The key is known: a hit, or a conflict that names the fields that differ.
fn known_key(known: &Job, op: &Enqueue) -> Result<Transition, Refusal> {
    let fields = match op.new.idempotency {
        Idempotency::Run { .. } | Idempotency::Slot { .. } | Idempotency::Server { .. } => {
            Vec::new()
        }
        Idempotency::OwnId | Idempotency::Key { .. } => {
            Fingerprint::of_request(&op.new).differs_from(&Fingerprint::of_job(&known.spec))
        }
    };
    if fields.is_empty() {
        Ok(Transition::recorded(known))
    } else {
        Err(Refusal::IdempotencyConflict { job_id: known.id, fields })
    }
}

/// The task is known: its next attempt, unless it may not run again, or not yet.
fn next_attempt(asked: &NewTask, known: &Task) -> Result<u32, Refusal> {
    let task_id = asked.task_id.clone();
    if !asked.may_rerun {
        return Err(Refusal::TaskDuplicate { task_id });
    }
    match known.active {
        Some(job_id) => Err(Refusal::TaskActive { task_id, job_id }),
        None => Ok(known.next_attempt),
    }
}

/// The task is not known: its first attempt. A job id as a task means that job, which has to be there:
/// otherwise a job that gets this id later would run a task that is taken.
fn first_attempt(asked: &NewTask, job_id: JobId) -> Result<u32, Refusal> {
    match asked.task_id.as_str().parse::<JobId>() {
        Ok(other) if other != job_id => {
            Err(Refusal::invalid("task_id", "is a job id, and there is no such job"))
        }
        _ => Ok(1),
    }
}

/// The important fields of a request: two requests under one key must agree in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The task, if one was named. A request that names none agrees with any.
    task_id: Option<TaskId>,
    kind: Kind,
    queue: Queue,
    schedule_type: ScheduleType,
    scheduled_at: Option<Timestamp>,
    timeout: Option<Duration>,
    max_retries: u32,
    retry: RetryPolicy,
    /// The digest of the payload's canonical JSON.
    payload: Digest,
}

impl Fingerprint {
    /// The fingerprint of what is asked for.
    pub fn of_request(new: &NewJob) -> Self {
        Self {
            task_id: new.task.as_ref().map(|task| task.task_id.clone()),
            kind: new.kind.clone(),
            queue: new.queue.clone(),
            schedule_type: new.schedule_type,
            scheduled_at: new.scheduled_at,
            timeout: new.timeout,
            max_retries: new.max_retries,
            retry: new.retry,
            payload: new.payload.digest(),
        }
    }

    /// The fingerprint of a job's request.
    pub fn of_job(spec: &Spec) -> Self {
        Self {
            task_id: Some(spec.task_id.clone()),
            kind: spec.kind.clone(),
            queue: spec.queue.clone(),
            schedule_type: spec.schedule_type,
            scheduled_at: spec.scheduled_at,
            timeout: spec.timeout,
            max_retries: spec.max_retries,
            retry: spec.retry,
            payload: spec.payload_digest,
        }
    }

    /// The names of the fields that differ, as callers know them.
    pub fn differs_from(&self, known: &Fingerprint) -> Vec<&'static str> {
        let fields = [
            ("task_id", self.task_id.is_some() && self.task_id != known.task_id),
            ("kind", self.kind != known.kind),
            ("queue", self.queue != known.queue),
            ("schedule_type", self.schedule_type != known.schedule_type),
            ("scheduled_at", self.scheduled_at != known.scheduled_at),
            ("timeout_ms", self.timeout != known.timeout),
            ("max_retries", self.max_retries != known.max_retries),
            ("retry", self.retry != known.retry),
            ("payload", self.payload != known.payload),
        ];
        fields.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

/// Creates a job: due now, or scheduled.
pub(crate) fn create(
    job_id: JobId,
    spec: Arc<Spec>,
    attempt: u32,
    payload: NewPayload,
    by: &By,
    now: Timestamp,
) -> Transition {
    let cause = if spec.due_at > now { Cause::Scheduled } else { Cause::Enqueued };
    let to = machine::target(None, cause).expect("both causes create a job");
    let event = Event {
        job_id,
        number: 1,
        at: now,
        cause,
        from: None,
        to,
        attempt,
        retry_count: 0,
        epoch: crate::Epoch::ZERO,
        started: false,
        actor: by.actor.clone(),
        trace_id: by.trace_id.clone(),
        fact: Fact::Created { spec, attempt },
    };
    let job = evolve(None, &event);
    let task = job.spec.task_given.then(|| task_of(&job));
    Transition { events: vec![event], payload: Some(payload), task, ..Transition::to(job) }
}
