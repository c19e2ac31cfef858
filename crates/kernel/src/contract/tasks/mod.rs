//! Contract `tasks`: a job as a scheduled task.
//!
//! A task is `pending` until its time, `ready` until a worker starts it, and `ready` again while it waits
//! for a retry. Whatever fails has one of three codes: a start-to-close time-out, any other failure (which
//! has its own code in the reason), or retries that are used up.

use serde::Serialize;

use super::{Contract, failure};
use crate::{
    Cause, Event, Fact, Failure, IdempotencyKey, Job, Spec, State, TaskId, Timestamp, Transition,
    failure::TASK_TIMEOUT, job::ScheduleType,
};

mod create;

pub use self::create::CreateTask;

/// The contract.
pub static CONTRACT: Contract = Contract {
    name: "tasks",
    states: &["pending", "ready", "running", "succeeded", "failed", "cancelled"],
    begins: &["pending", "ready"],
    ends: &["succeeded", "failed", "cancelled"],
    moves: &[
        ("pending", "ready"),
        ("ready", "running"),
        ("running", "succeeded"),
        ("running", "failed"),
        ("running", "ready"),
        ("pending", "cancelled"),
        ("ready", "cancelled"),
        ("running", "cancelled"),
    ],
    additions: &[],
    codes: &[
        ("INVALID_TRANSITION", "TASK_INVALID_TRANSITION"),
        ("IDEMPOTENCY_CONFLICT", "TASK_DUPLICATE"),
    ],
    image,
};

fn image(state: State, started: bool) -> Option<&'static str> {
    match state {
        State::Scheduled => Some("pending"),
        State::Queued | State::Dispatched if !started => Some("ready"),
        State::Queued | State::Dispatched | State::Running => Some("running"),
        State::Waiting | State::Interrupted => Some("running"),
        State::RetryScheduled => Some("ready"),
        State::DlqPending | State::DlqRecorded => None,
        State::Succeeded | State::Partial => Some("succeeded"),
        State::Failed => Some("failed"),
        State::Cancelled => Some("cancelled"),
    }
}

/// A failure that is not a start-to-close time-out.
pub const TASK_EXECUTION_FAILED: &str = "TASK_EXECUTION_FAILED";
/// A failure that could be tried again, at the last attempt.
pub const TASK_RETRY_EXHAUSTED: &str = "TASK_RETRY_EXHAUSTED";

/// How many attempts a task has: the first, and its retries.
pub const fn max_attempts(max_retries: u32) -> u32 {
    max_retries.saturating_add(1)
}

/// What went wrong, in the words of this contract.
struct Reason {
    code: &'static str,
    message: String,
}

impl Reason {
    /// `why` is what the failure led to: the retries may be used up.
    fn new(failure: &Failure, why: Option<Cause>) -> Self {
        let (code, message) = match failure.code.as_str() {
            TASK_TIMEOUT => (TASK_TIMEOUT, failure.message.clone()),
            own => (TASK_EXECUTION_FAILED, format!("{own}: {}", failure.message)),
        };
        if why == Some(Cause::RetriesExhausted) {
            let message = format!("{message} exhausted retries");
            return Self { code: TASK_RETRY_EXHAUSTED, message };
        }
        Self { code, message }
    }
}

/// A task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskDocument {
    /// The task.
    pub task_id: TaskId,
    /// How it came to have its time.
    pub schedule_type: ScheduleType,
    /// Where it stands.
    pub state: &'static str,
    /// Which attempt it is at, from 1.
    pub attempt: u32,
    /// How many times it is tried again.
    pub max_retries: u32,
    /// How long one attempt may take.
    pub timeout_ms: Option<u64>,
    /// The key it was created under.
    pub idempotency_key: IdempotencyKey,
    /// The code of its last failure.
    pub last_error_code: Option<&'static str>,
    /// What the last failure was.
    pub last_error_reason: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
    /// When it first started.
    pub started_at: Option<Timestamp>,
    /// When it came to its end.
    pub finished_at: Option<Timestamp>,
}

impl TaskDocument {
    /// The task that `job` runs.
    pub fn new(job: &Job) -> Self {
        let spec = &job.spec;
        let reason = job.error.as_ref().map(|failure| Reason::new(failure, job.ended_by));
        Self {
            task_id: spec.task_id.clone(),
            schedule_type: spec.schedule_type,
            state: CONTRACT.status(job),
            attempt: job.attempt,
            max_retries: spec.max_retries,
            timeout_ms: spec.timeout.map(crate::time::as_ms),
            idempotency_key: spec.idempotency_key.clone(),
            last_error_code: reason.as_ref().map(|reason| reason.code),
            last_error_reason: reason.map(|reason| reason.message),
            created_at: spec.created_at,
            updated_at: job.updated_at,
            started_at: job.started_at,
            finished_at: job.finished_at,
        }
    }
}

/// The answer to a [`CreateTask`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskAnswer {
    /// Was the task there already? Then nothing was created.
    pub idempotent_hit: bool,
    /// The task.
    pub task: TaskDocument,
}

impl TaskAnswer {
    /// What the creator is told of what the enqueue did.
    pub fn new(done: &Transition) -> Self {
        Self { idempotent_hit: done.answer.recorded, task: TaskDocument::new(&done.job) }
    }
}

/// The event `task_state_changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskEvent {
    /// Its name.
    #[serde(rename = "type")]
    pub name: &'static str,
    /// Who tells it.
    pub source: &'static str,
    /// The queue it comes from.
    pub session_key: String,
    /// Its id: the same each time it is read.
    pub event_id: String,
    /// What it is about.
    pub payload: TaskStateChanged,
}

/// The payload of `task_state_changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskStateChanged {
    /// The task.
    pub task_id: TaskId,
    /// Where it stood; nothing at its creation.
    pub from_state: Option<&'static str>,
    /// Where it stands.
    pub to_state: &'static str,
    /// When.
    pub occurred_at: Timestamp,
    /// Which attempt it is at. The one that failed, when it becomes ready for a retry.
    pub attempt: u32,
    /// The code of the failure, if this is what happened.
    pub reason_code: Option<&'static str>,
    /// What failed, or why it was cancelled.
    pub reason_message: Option<String>,
    /// Always false: a request that finds its task changes nothing and has no event.
    pub idempotent_hit: bool,
}

/// The event as this contract tells it; none, if it sees no change. `position` is the event's place in
/// the store.
pub fn tell(event: &Event, spec: &Spec, position: u64) -> Option<TaskEvent> {
    let step = CONTRACT.step(event)?;
    let (why, words) = match &event.fact {
        Fact::Buried { why, .. } => (Some(*why), None),
        Fact::Cancelled { reason, .. } => (None, reason.clone()),
        _ => (None, None),
    };
    let reason = failure(event).map(|failure| Reason::new(failure, why));
    let payload = TaskStateChanged {
        task_id: spec.task_id.clone(),
        from_state: step.previous,
        to_state: step.now,
        occurred_at: event.at,
        attempt: event.attempt,
        reason_code: reason.as_ref().map(|reason| reason.code),
        reason_message: reason.map(|reason| reason.message).or(words),
        idempotent_hit: false,
    };
    Some(TaskEvent {
        name: "task_state_changed",
        source: "gateway.scheduler",
        session_key: format!("scheduler:{}", spec.queue),
        event_id: format!("evt_task_{position}"),
        payload,
    })
}

#[cfg(test)]
mod tests;
