//! Contract `tasks` against the examples of its own document, letter by letter.

use super::*;
use crate::{
    Refusal,
    contract::{life, life::Life, tests::check_moves},
    ops::{NewJob, Outcome},
    timer::Alarm,
};

const MOVES: &str = "
    pending -> ready
    ready -> running
    running -> succeeded
    running -> failed
    running -> ready
    pending|ready|running -> cancelled";

const REQUEST: &str = r#"{
  "task_id": "task_20260225_0001",
  "schedule_type": "at",
  "scheduled_at": "2026-02-25T12:00:00Z",
  "timeout_ms": 30000,
  "max_retries": 2,
  "idempotency_key": "order_1001",
  "idempotency_scope": "tenant_a",
  "payload": {
    "channel": "dingtalk",
    "request_id": "req-1"
  }
}"#;

const EVENT: &str = r#"{
  "type": "task_state_changed",
  "source": "gateway.scheduler",
  "session_key": "scheduler:default",
  "event_id": "evt_task_1",
  "payload": {
    "task_id": "task_20260225_0001",
    "from_state": "running",
    "to_state": "failed",
    "occurred_at": "2026-02-25T12:00:30Z",
    "attempt": 3,
    "reason_code": "TASK_RETRY_EXHAUSTED",
    "reason_message": "start_to_close timeout exhausted retries",
    "idempotent_hit": false
  }
}"#;

const HIT: &str = r#"{
  "idempotent_hit": true,
  "task": {
    "task_id": "task_20260225_0001",
    "schedule_type": "at",
    "state": "ready",
    "attempt": 1,
    "max_retries": 2,
    "timeout_ms": 30000,
    "idempotency_key": "order_1001",
    "last_error_code": null,
    "last_error_reason": null,
    "created_at": "2026-02-25T11:59:58Z",
    "updated_at": "2026-02-25T11:59:58Z",
    "started_at": null,
    "finished_at": null
  }
}"#;

/// The request of the document, for another time. Its three examples do not fit one clock: three
/// attempts of 30 s do not end 30 s after 12:00:00, nor is a task ready before its time.
fn request(scheduled_at: &str) -> NewJob {
    let text = REQUEST.replace("2026-02-25T12:00:00Z", scheduled_at);
    serde_json::from_str::<CreateTask>(&text).unwrap().into_new_job(1_000).unwrap()
}

fn told(life: &Life) -> Vec<TaskStateChanged> {
    let events = life.events.iter();
    events.filter_map(|event| tell(event, &life.job.spec, 1)).map(|told| told.payload).collect()
}

#[test]
fn the_moves_are_those_of_the_document() {
    check_moves(&CONTRACT, MOVES);
}

#[test]
fn the_third_time_out_of_three_is_told_as_in_the_document() {
    let mut life = Life::begin(request("2026-02-25T11:58:57Z"), "2026-02-25T11:58:55Z");
    life.ring(Alarm::Due).start().ring(Alarm::StartToClose);
    life.start().ring(Alarm::StartToClose);
    life.start().ring(Alarm::StartToClose);
    let event = tell(life.events.last().unwrap(), &life.job.spec, 1).unwrap();
    assert_eq!(serde_json::to_string_pretty(&event).unwrap(), EVENT);
}

#[test]
fn a_hit_is_answered_as_in_the_document() {
    let life = Life::begin(request("2026-02-25T11:59:58Z"), "2026-02-25T11:59:58Z");
    let hit = TaskAnswer::new(&life.send_again(request("2026-02-25T11:59:58Z")));
    assert_eq!(serde_json::to_string_pretty(&hit).unwrap(), HIT);
}

#[test]
fn a_task_goes_its_way_and_each_step_is_told_once() {
    let mut life = Life::begin(request("2026-02-25T12:00:00Z"), "2026-02-25T11:59:58Z");
    life.ring(Alarm::Due).start().ring(Alarm::StartToClose).start().fail().start().succeed();
    let told = told(&life);
    let steps: Vec<_> = told.iter().map(|t| (t.from_state, t.to_state, t.attempt)).collect();
    let expected = [
        (None, "pending", 1),
        (Some("pending"), "ready", 1),
        (Some("ready"), "running", 1),
        (Some("running"), "ready", 1),
        (Some("ready"), "running", 2),
        (Some("running"), "ready", 2),
        (Some("ready"), "running", 3),
        (Some("running"), "succeeded", 3),
    ];
    assert_eq!(steps, expected);
    let reasons = told.iter().filter_map(|t| Some((t.reason_code?, t.reason_message.as_deref()?)));
    let expected = [
        ("TASK_TIMEOUT", "start_to_close timeout"),
        ("TASK_EXECUTION_FAILED", "SMTP_DOWN: connection refused"),
    ];
    assert_eq!(reasons.collect::<Vec<_>>(), expected);
}

#[test]
fn the_last_retryable_failure_exhausts_the_retries() {
    let mut life = Life::begin(request("2026-02-25T12:00:00Z"), "2026-02-25T12:00:00Z");
    life.start().fail().start().fail().start().fail();
    let task = TaskDocument::new(&life.job);
    assert_eq!((task.state, task.attempt), ("failed", max_attempts(task.max_retries)));
    assert_eq!(task.last_error_code, Some(TASK_RETRY_EXHAUSTED));
    let reason = task.last_error_reason.unwrap();
    assert_eq!(reason, "SMTP_DOWN: connection refused exhausted retries");
}

#[test]
fn a_failure_that_will_not_pass_keeps_its_own_code_in_the_reason() {
    let mut life = Life::begin(life::usual(), "2026-02-25T12:00:00Z");
    let failure = Failure::permanent("BAD_ADDRESS", "no such domain");
    life.start().settle(Outcome::Failed(failure));
    let task = TaskDocument::new(&life.job);
    assert_eq!((task.state, task.attempt), ("failed", 1));
    assert_eq!(task.last_error_code, Some(TASK_EXECUTION_FAILED));
    assert_eq!(task.last_error_reason.as_deref(), Some("BAD_ADDRESS: no such domain"));
    let last = told(&life).pop().unwrap();
    assert_eq!((last.from_state, last.reason_code), (Some("running"), task.last_error_code));
}

#[test]
fn a_cancelled_task_tells_the_words_of_whoever_cancelled() {
    let mut life = Life::begin(life::usual(), "2026-02-25T12:00:00Z");
    life.cancel();
    let last = told(&life).pop().unwrap();
    assert_eq!((last.from_state, last.to_state), (Some("ready"), "cancelled"));
    assert_eq!((last.reason_code, last.reason_message.as_deref()), (None, Some("not needed")));
}

#[test]
fn the_same_key_with_other_fields_is_a_duplicate() {
    let (job_id, fields) = (crate::JobId::from_u128(1), vec!["payload"]);
    let conflict = Refusal::IdempotencyConflict { job_id, fields };
    assert_eq!(CONTRACT.code(&conflict), "TASK_DUPLICATE");
    let task_id = TaskId::new("t").unwrap();
    assert_eq!(CONTRACT.code(&Refusal::TaskDuplicate { task_id }), "TASK_DUPLICATE");
}

#[test]
fn a_success_after_a_failure_leaves_no_error() {
    let mut life = Life::begin(life::usual(), "2026-02-25T12:00:00Z");
    life.start().fail().start();
    let running = TaskDocument::new(&life.job);
    assert_eq!(running.last_error_code, Some(TASK_EXECUTION_FAILED));
    life.succeed();
    let done = TaskDocument::new(&life.job);
    assert_eq!((done.state, done.last_error_code), ("succeeded", None));
    assert_eq!(done.finished_at, Some(done.updated_at));
}
