//! Contract `runs`: a job as a run of a task.
//!
//! A run is asked for under a key, and asking again gives the same run, whatever else was sent.
//! `next_retry_at` is there if and only if the run is `retry_scheduled`. Each step is told as
//! `run.status.changed`, in the transaction that made it.

use serde::Serialize;

use super::{Contract, Told, error_code};
use crate::{
    Actor, Event, Fact, IdempotencyKey, Job, JobId, Kind, Payload, Spec, State, TaskId, Timestamp,
    TraceId,
    ops::{Idempotency, NewJob, NewTask},
};

/// The contract.
pub static CONTRACT: Contract = Contract {
    name: "runs",
    states: &[
        "queued",
        "running",
        "retry_scheduled",
        "interrupted",
        "succeeded",
        "failed",
        "cancelled",
    ],
    begins: &["queued"],
    ends: &["succeeded", "failed", "cancelled"],
    moves: &[
        ("queued", "running"),
        ("queued", "cancelled"),
        ("running", "succeeded"),
        ("running", "failed"),
        ("running", "retry_scheduled"),
        ("running", "interrupted"),
        ("running", "cancelled"),
        ("retry_scheduled", "running"),
        ("retry_scheduled", "cancelled"),
        ("interrupted", "running"),
        ("interrupted", "failed"),
        ("interrupted", "cancelled"),
    ],
    additions: &[],
    codes: &[],
    image,
};

fn image(state: State, started: bool) -> Option<&'static str> {
    match state {
        State::Scheduled => Some("queued"),
        State::Queued | State::Dispatched if !started => Some("queued"),
        State::Queued | State::Dispatched | State::Running | State::Waiting => Some("running"),
        State::RetryScheduled => Some("retry_scheduled"),
        State::Interrupted => Some("interrupted"),
        State::DlqPending | State::DlqRecorded => None,
        State::Succeeded | State::Partial => Some("succeeded"),
        State::Failed => Some("failed"),
        State::Cancelled => Some("cancelled"),
    }
}

/// What to enqueue to run this task under this key. All else is as usual and can be set afterwards.
///
/// An empty key cannot get here: an [`IdempotencyKey`] is never empty.
pub fn create_for_task(
    task_id: TaskId,
    key: IdempotencyKey,
    kind: Kind,
    payload: Payload,
) -> NewJob {
    NewJob {
        idempotency: Idempotency::Run { key },
        task: Some(NewTask { task_id, may_rerun: true }),
        ..NewJob::new(kind, payload)
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunDocument {
    /// The run.
    pub run_id: JobId,
    /// What it is a run of.
    pub task_id: TaskId,
    /// Where it stands.
    pub run_status: &'static str,
    /// Which execution of its task it is, from 1.
    pub attempt: u32,
    /// The key it was asked for under.
    pub idempotency_key: IdempotencyKey,
    /// When it is tried again.
    pub next_retry_at: Option<Timestamp>,
    /// The code of its last failure.
    pub error_code: Option<String>,
    /// The trace it belongs to.
    pub trace_id: TraceId,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

impl RunDocument {
    /// The run that `job` is.
    pub fn new(job: &Job) -> Self {
        Self {
            run_id: job.id,
            task_id: job.spec.task_id.clone(),
            run_status: CONTRACT.status(job),
            attempt: job.attempt,
            idempotency_key: job.spec.idempotency_key.clone(),
            next_retry_at: job.next_retry_at,
            error_code: job.error.as_ref().map(|failure| failure.code.clone()),
            trace_id: job.spec.trace_id.clone(),
            created_at: job.spec.created_at,
            updated_at: job.updated_at,
        }
    }
}

/// The payload of `run.status.changed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunStatusChanged {
    /// The run.
    pub run_id: JobId,
    /// What it is a run of.
    pub task_id: TaskId,
    /// Where it stood; nothing at its creation.
    pub previous_status: Option<&'static str>,
    /// Where it stands.
    pub status: &'static str,
    /// Which execution of its task it is. The one that failed, when a retry is scheduled.
    pub attempt: u32,
    /// The key it was asked for under.
    pub idempotency_key: IdempotencyKey,
    /// When it is tried again, if this is what was decided.
    pub next_retry_at: Option<Timestamp>,
    /// The code of the failure, if this is what happened.
    pub error_code: Option<String>,
    /// Who did it.
    pub actor: Actor,
}

/// The event as this contract tells it; none, if it sees no change. `number` is its number in the store.
pub fn tell(event: &Event, spec: &Spec, number: u64) -> Option<Told<RunStatusChanged>> {
    let step = CONTRACT.step(event)?;
    let next_retry_at = match &event.fact {
        Fact::Retry { next_retry_at, .. } => Some(*next_retry_at),
        _ => None,
    };
    let payload = RunStatusChanged {
        run_id: event.job_id,
        task_id: spec.task_id.clone(),
        previous_status: step.previous,
        status: step.now,
        attempt: event.attempt,
        idempotency_key: spec.idempotency_key.clone(),
        next_retry_at,
        error_code: error_code(event),
        actor: event.actor.clone(),
    };
    Some(Told::new("run.status.changed", event, spec, number, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Refusal,
        contract::{life::Life, tests::check_moves},
        timer::Alarm,
    };

    const DIAGRAM: &str = "
        [*] --> queued
        queued --> running: worker_claim
        queued --> cancelled: cancel_command

        running --> succeeded: completed
        running --> failed: non_retryable_error
        running --> retry_scheduled: retryable_error
        running --> interrupted: process_restart
        running --> cancelled: cancel_command

        retry_scheduled --> running: retry_due
        retry_scheduled --> cancelled: cancel_command

        interrupted --> running: recovery_resume
        interrupted --> failed: recovery_abort
        interrupted --> cancelled: cancel_command";

    fn run() -> NewJob {
        let (task, key) = (TaskId::new("report").unwrap(), IdempotencyKey::new("monday").unwrap());
        let payload = Payload::parse("{}", 2).unwrap();
        create_for_task(task, key, Kind::new("mail").unwrap(), payload)
    }

    fn told(life: &Life) -> Vec<RunStatusChanged> {
        let events = life.events.iter();
        events.filter_map(|event| tell(event, &life.job.spec, 9)).map(|told| told.payload).collect()
    }

    #[test]
    fn the_moves_are_those_of_the_document() {
        check_moves(&CONTRACT, DIAGRAM);
    }

    #[test]
    fn a_known_key_gives_the_run_that_exists_whatever_else_was_sent() {
        let life = Life::begin(run(), "2026-02-07T08:00:00Z");
        let other = NewJob { payload: Payload::parse("[1]", 3).unwrap(), ..run() };
        let again = life.send_again(other);
        assert!(again.answer.recorded && again.events.is_empty());
        assert_eq!(RunDocument::new(&again.job), RunDocument::new(&life.job));
    }

    #[test]
    fn an_empty_key_is_refused() {
        let refusal = IdempotencyKey::new("").unwrap_err();
        assert_eq!(refusal, Refusal::invalid("idempotency_key", "must not be empty"));
    }

    #[test]
    fn a_blank_key_is_refused() {
        for text in [" ", "\u{a0}\u{2003}"] {
            let key = IdempotencyKey::new(text).unwrap();
            let (task, kind) = (TaskId::new("report").unwrap(), Kind::new("mail").unwrap());
            let new = create_for_task(task, key, kind, Payload::parse("{}", 2).unwrap());
            let refusal = new.check("2026-02-07T08:00:00Z".parse().unwrap()).unwrap_err();
            assert_eq!(refusal, Refusal::invalid("idempotency_key", "must not be blank"));
        }
    }

    #[test]
    fn a_run_and_its_events_have_exactly_the_fields_of_the_document() {
        let mut life = Life::begin(run(), "2026-02-07T08:00:00Z");
        life.start().fail();
        let document = serde_json::to_string(&RunDocument::new(&life.job)).unwrap();
        assert_eq!(
            document,
            r#"{"run_id":"job_00000000000000000000000001","task_id":"report","#.to_owned()
                + r#""run_status":"retry_scheduled","attempt":1,"idempotency_key":"monday","#
                + r#""next_retry_at":"2026-02-07T08:00:01Z","error_code":"SMTP_DOWN","#
                + r#""trace_id":"trace-run-job_00000000000000000000000001-"#
                + r#"00000000-0000-4000-8000-000000000007","#
                + r#""created_at":"2026-02-07T08:00:00Z","updated_at":"2026-02-07T08:00:00Z"}"#
        );
        let event = tell(life.events.last().unwrap(), &life.job.spec, 9).unwrap();
        assert_eq!(
            serde_json::to_string(&event).unwrap(),
            r#"{"type":"run.status.changed","number":9,"at":"2026-02-07T08:00:00Z","#.to_owned()
                + r#""trace_id":"trace-run-job_00000000000000000000000001-"#
                + r#"00000000-0000-4000-8000-000000000007","#
                + r#""payload":{"run_id":"job_00000000000000000000000001","task_id":"report","#
                + r#""previous_status":"running","status":"retry_scheduled","attempt":1,"#
                + r#""idempotency_key":"monday","next_retry_at":"2026-02-07T08:00:01Z","#
                + r#""error_code":"SMTP_DOWN","actor":"worker:w1"}}"#
        );
    }

    #[test]
    fn creation_is_an_event_without_a_state_before() {
        let life = Life::begin(run(), "2026-02-07T08:00:00Z");
        let created = &told(&life)[0];
        assert_eq!((created.previous_status, created.status), (None, "queued"));
        assert_eq!(created.actor.to_string(), "user:alice");
    }

    #[test]
    fn next_retry_at_is_there_only_while_a_retry_is_scheduled() {
        let mut life = Life::begin(run(), "2026-02-07T08:00:00Z");
        life.start().fail().start().ring(Alarm::Lease).start().succeed();
        let steps = told(&life);
        let statuses: Vec<&str> = steps.iter().map(|step| step.status).collect();
        let expected =
            ["queued", "running", "retry_scheduled", "running", "interrupted", "running"];
        assert_eq!(statuses[..6], expected);
        assert_eq!(statuses[6..], ["succeeded"]);
        for step in &steps {
            assert_eq!(step.next_retry_at.is_some(), step.status == "retry_scheduled", "{step:?}");
        }
        assert_eq!(RunDocument::new(&life.job).next_retry_at, None);
    }

    #[test]
    fn the_attempt_is_the_one_that_failed_until_the_next_begins() {
        let mut life = Life::begin(run(), "2026-02-07T08:00:00Z");
        life.start().fail().start().succeed();
        let attempts: Vec<u32> = told(&life).iter().map(|step| step.attempt).collect();
        assert_eq!(attempts, [1, 1, 1, 2, 2]);
    }

    #[test]
    fn a_run_that_is_given_up_goes_from_where_it_was_to_failed() {
        let new = NewJob { max_interruptions: 1, ..run() };
        let mut life = Life::begin(new, "2026-02-07T08:00:00Z");
        life.start().ring(Alarm::Lease);
        let last = told(&life).pop().unwrap();
        assert_eq!((last.previous_status, last.status), (Some("interrupted"), "failed"));
        assert_eq!(last.error_code.as_deref(), Some("INTERRUPTED_TOO_OFTEN"));
        assert_eq!(last.actor, Actor::Recovery);
    }
}
