//! Pages of jobs in every state, as they are seen on a wide and on a narrow terminal.

use std::{env, fs, path::Path, time::Duration};

use serde_json::{Value, json};
use windlass_kernel::Timestamp;

use super::Page;
use crate::cli::{
    Output,
    look::{
        times::{TimeStyle, Times},
        view::View,
    },
};

const ID: &str = "job_00000000000000000000000001";

/// So many ms after the job was created.
fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(1_790_000_000_000_000).plus(Duration::from_millis(ms))
}

/// A job in the making.
struct Story {
    job: Value,
    events: Vec<Value>,
    attempts: Vec<Value>,
    why: Vec<&'static str>,
}

impl Story {
    fn new() -> Self {
        let job = json!({
            "job_id": ID, "tenant": "default", "task_id": ID, "kind": "send_mail", "queue": "default",
            "schedule_type": "at", "idempotency_scope": "default", "epoch": 0, "lease_count": 0,
            "priority": 0, "state": "queued", "attempt": 1, "retry_count": 0, "max_retries": 3,
            "retry": {"base_ms": 1000, "max_backoff_ms": 300_000}, "due_at": at(0),
            "timeout_ms": null, "idempotency_key": ID, "tags": [], "trace_id": "4bf92f3577b34da6",
            "interruptions": 0, "cancel_requested": false, "version": 0, "created_at": at(0),
            "updated_at": at(0),
        });
        let mut story = Self { job, events: Vec::new(), attempts: Vec::new(), why: Vec::new() };
        story.event(0, "enqueued", "queued", 1, "user:ann", &json!({"type": "created"}));
        story
    }

    fn set(mut self, fields: &Value) -> Self {
        let known = self.job.as_object_mut().expect("a job is an object");
        known.extend(fields.as_object().expect("fields").clone());
        self
    }

    fn event(&mut self, ms: u64, cause: &str, to: &str, attempt: u32, actor: &str, fact: &Value) {
        let from = self.events.last().map(|event| event["to"].clone());
        let number = self.job["version"].as_u64().expect("a number") + 1;
        self.events.push(json!({
            "job_id": ID, "number": number, "at": at(ms), "cause": cause, "from": from, "to": to,
            "attempt": attempt, "retry_count": 0, "epoch": attempt, "actor": actor, "fact": fact,
        }));
        self.job["state"] = json!(to);
        self.job["version"] = json!(number);
        self.job["updated_at"] = json!(at(ms));
    }

    /// A worker claims it and starts it.
    fn run(&mut self, ms: u64, attempt: u32, worker: &str) {
        let actor = format!("worker:{worker}");
        let fact = json!({"type": "claimed", "epoch": attempt, "worker": worker});
        self.event(ms, "worker_claim", "dispatched", attempt, &actor, &fact);
        self.event(ms + 2, "started", "running", attempt, &actor, &json!({"type": "plain"}));
        self.job["lease_owner"] = json!(worker);
        self.job["leased_until"] = json!(at(ms + 30_000));
        self.attempts.push(json!({
            "attempt": attempt, "state": "RUNNING", "epoch": attempt, "first_worker": worker,
            "last_worker": worker, "ended_by": null, "started_at": at(ms + 2),
            "finished_at": null, "error": null, "stats": null,
        }));
    }

    fn ended(&mut self, ms: u64, state: &str, error: &Value) {
        let attempt = self.attempts.last_mut().expect("it runs");
        attempt["state"] = json!(state);
        attempt["finished_at"] = json!(at(ms));
        attempt["error"] = error.clone();
    }

    /// It fails, and is tried again.
    fn fail(&mut self, ms: u64, attempt: u32, next_ms: u64) {
        let error = refused();
        let fact = json!({"type": "retry", "failure": error, "next_retry_at": at(next_ms)});
        self.event(ms, "retryable_error", "retry_scheduled", attempt, "worker:w1", &fact);
        self.ended(ms, "FAILED", &error);
        self.job["retry_count"] = json!(attempt);
        self.job["next_retry_at"] = json!(at(next_ms));
        self.job["error"] = error;
        self.job["started_at"] = json!(at(12));
    }

    fn page(&self) -> Page {
        let read = "a story is what the API answers";
        let list = |values: &[Value]| json!(values).to_string();
        Page {
            job: serde_json::from_str(&self.job.to_string()).expect(read),
            attempts: serde_json::from_str(&list(&self.attempts)).expect(read),
            events: serde_json::from_str(&list(&self.events)).expect(read),
            why: self.why.iter().map(|line| (*line).to_owned()).collect(),
        }
    }
}

fn refused() -> Value {
    json!({
        "code": "HTTP_UNREACHABLE", "message": "connection refused", "class": "transient",
        "retryable": true,
    })
}

fn retrying() -> Story {
    let mut story = Story::new();
    story.run(10, 1, "w1");
    story.fail(262, 1, 1_262);
    story.run(1_300, 2, "w2");
    story.fail(1_700, 2, 3_700);
    story.why =
        vec!["- after HTTP_UNREACHABLE it waits until 2026-09-21T14:13:23.7Z for retry 2 of 3"];
    story.set(&json!({
        "payload": {"to": "ann@example.com", "cents": 1250}, "tags": ["welcome", "mail"],
        "idempotency_key": "welcome-17", "timeout_ms": 30_000,
    }))
}

fn succeeded() -> Story {
    let mut story = retrying();
    story.why = Vec::new();
    story.run(3_605_000, 3, "w1");
    story.event(3_606_250, "completed", "succeeded", 3, "worker:w1", &json!({"type": "finished"}));
    story.ended(3_606_250, "SUCCEEDED", &Value::Null);
    story.set(&json!({
        "result": {"sent": true}, "next_retry_at": null, "error": null, "finished_at": at(3_606_250),
        "lease_owner": null, "leased_until": null,
    }))
}

fn failed() -> Story {
    let mut story = Story::new().set(&json!({"max_retries": 0}));
    story.run(10, 1, "w1");
    let error = json!({
        "code": "BAD_ADDRESS", "message": "no such mailbox: \u{1b}[31mann\nasked mx1.example.com",
        "class": "permanent", "retryable": false,
    });
    let buried = |cause: &str| {
        json!({
            "type": "buried", "dlq_id": ID.replace("job", "dlq"), "began_in": "running",
            "why": cause, "failure": error.clone(),
        })
    };
    let fact = || buried("non_retryable_error");
    story.event(60, "non_retryable_error", "dlq_pending", 1, "worker:w1", &fact());
    story.event(60, "dlq_written", "dlq_recorded", 1, "worker:w1", &fact());
    story.event(60, "dlq_closed", "failed", 1, "worker:w1", &fact());
    story.ended(60, "FAILED", &error);
    story.set(&json!({
        "error": error, "dlq_id": ID.replace("job", "dlq"), "finished_at": at(60),
        "payload": "ann", "started_at": at(12),
    }))
}

/// Interrupted again and again, and parked in between.
fn long() -> Story {
    let mut story = Story::new();
    story.run(10, 1, "w1");
    for round in 0..2_000 {
        let ms = 100 + round * 1_000;
        let wait = json!({"type": "parked", "wait": {"on": "time", "until": at(ms + 900)}});
        story.event(ms, "job_waiting", "waiting", 1, "worker:w1", &wait);
        let woken = json!({"type": "woken", "how": "time"});
        story.event(ms + 900, "wait_completed", "queued", 1, "scheduler", &woken);
        let fact = json!({"type": "claimed", "epoch": 1, "worker": "w1"});
        story.event(ms + 910, "worker_claim", "dispatched", 1, "worker:w1", &fact);
        story.event(ms + 912, "started", "running", 1, "worker:w1", &json!({"type": "plain"}));
    }
    let kept = |event: &Value| {
        let number = event["number"].as_u64().expect("a number");
        number <= super::FIRST || number > 8_003 - super::LAST
    };
    story.events.retain(kept);
    story.set(&json!({"leased_until": at(2_030_000), "payload": null}))
}

fn parked() -> Story {
    let mut story = Story::new();
    story.run(10, 1, "w1");
    let wait = json!({"on": {"signal": "approve"}, "until": at(86_400_000)});
    let fact = json!({"type": "parked", "wait": wait});
    story.event(300, "job_waiting", "waiting", 1, "worker:w1", &fact);
    story.why =
        vec!["- its handler waits for signal approve, until 2026-09-22T14:13:20Z at the latest"];
    let progress = json!({"step": "asked ann"});
    story.set(&json!({
        "wait": wait, "cancel_requested": true, "progress": progress, "progress_at": at(250),
        "lease_owner": null, "leased_until": null,
    }))
}

fn cancelled() -> Story {
    let mut story = Story::new();
    let fact = json!({"type": "cancelled", "reason": "ordered twice"});
    story.event(4_000, "cancel_command", "cancelled", 1, "user:bob", &fact);
    story.set(&json!({"finished_at": at(4_000)}))
}

fn view(width: usize, now: Timestamp) -> View {
    let times = Times::new(TimeStyle::Relative, now);
    View { output: Output::Table, times, width, yes: false }
}

/// Compares the pages with their file, or writes it if `WINDLASS_BLESS` is set.
#[test]
fn a_job_is_a_page_worth_looking_at() {
    let mut running = retrying();
    running.run(3_750, 3, "w1");
    running.why = Vec::new();
    let mut queued = Story::new();
    queued.why = vec!["- no worker listens to queue default"];
    let shown = [
        ("It was just made.", queued, 3_000, 100),
        ("It waits for its next try.", retrying(), 1_705, 100),
        ("The same on a narrow terminal.", retrying(), 1_705, 60),
        ("It runs.", running.set(&json!({"next_retry_at": null})), 6_900, 100),
        ("It succeeded, after an hour in which nobody took it.", succeeded(), 3_700_000, 100),
        ("It failed.", failed(), 61_000, 100),
        ("It is parked, and somebody asked it to stop.", parked(), 5_000, 100),
        ("It was cancelled.", cancelled(), 9_000, 100),
        ("It has eight thousand events.", long(), 2_000_100, 100),
    ];
    let mut text = String::new();
    for (about, story, now, width) in shown {
        let page = story.page().text(&view(width, at(now)));
        let plain = anstream::adapter::strip_str(&page).to_string();
        text.push_str(&format!("# {about}\n\n{plain}\n\n"));
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/pages/job_show.txt");
    if env::var_os("WINDLASS_BLESS").is_some() {
        fs::write(&file, &text).expect("the folder can be written");
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(text, expected, "`make bless` writes {} anew", file.display());
}
