//! A job, its attempts and its events as people look at them: what is read of the documents, and said in short.

use anstyle::Style;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use windlass_kernel::{
    Timestamp,
    job::{Wait, WaitOn},
};

use crate::cli::{table::shortened, times::Times, view::state_look};

/// A job.
#[derive(Deserialize)]
pub(crate) struct Job {
    pub(crate) job_id: String,
    pub(crate) tenant: String,
    pub(crate) task_id: String,
    pub(crate) kind: String,
    pub(crate) queue: String,
    pub(crate) priority: i16,
    pub(crate) state: String,
    pub(crate) retry_count: u32,
    pub(crate) max_retries: u32,
    pub(crate) retry: Backoff,
    pub(crate) due_at: Timestamp,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) deadline_at: Option<Timestamp>,
    pub(crate) idempotency_key: String,
    pub(crate) limit_key: Option<String>,
    pub(crate) unique_key: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) trace_id: String,
    pub(crate) parent_job_id: Option<String>,
    pub(crate) requeued_from_dlq_id: Option<String>,
    pub(crate) rerun_of: Option<String>,
    pub(crate) lease_owner: Option<String>,
    pub(crate) leased_until: Option<Timestamp>,
    pub(crate) interruptions: u32,
    pub(crate) next_retry_at: Option<Timestamp>,
    pub(crate) wait: Option<Wait>,
    pub(crate) cancel_requested: bool,
    pub(crate) error: Option<Failed>,
    pub(crate) dlq_id: Option<String>,
    pub(crate) version: u64,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) payload: Option<Box<RawValue>>,
    pub(crate) result: Option<Box<RawValue>>,
    pub(crate) remaining: Option<Box<RawValue>>,
    pub(crate) progress: Option<Box<RawValue>>,
    pub(crate) progress_at: Option<Timestamp>,
}

/// How long it waits before a retry.
#[derive(Deserialize)]
pub(crate) struct Backoff {
    pub(crate) base_ms: u64,
    pub(crate) max_backoff_ms: u64,
}

/// What went wrong.
#[derive(Deserialize)]
pub(crate) struct Failed {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) class: String,
    pub(crate) retryable: bool,
}

/// One execution.
#[derive(Deserialize)]
pub(crate) struct Attempt {
    pub(crate) attempt: u32,
    pub(crate) state: String,
    /// Not told by a server of before.
    pub(crate) first_worker: Option<String>,
    pub(crate) last_worker: Option<String>,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) finished_at: Option<Timestamp>,
    pub(crate) error: Option<Failed>,
}

/// One fact of its history.
#[derive(Deserialize)]
pub(crate) struct Event {
    pub(crate) number: u64,
    pub(crate) at: Timestamp,
    pub(crate) cause: String,
    pub(crate) from: Option<String>,
    pub(crate) to: String,
    pub(crate) attempt: u32,
    pub(crate) epoch: u64,
    pub(crate) actor: String,
    #[serde(default)]
    pub(crate) fact: Value,
}

/// Is it the end of a job?
pub(crate) fn is_end(state: &str) -> bool {
    matches!(state, "succeeded" | "partial" | "failed" | "cancelled")
}

/// How much of a message is told in a sentence.
const SENTENCE: usize = 200;

impl Failed {
    /// The sentence and the code.
    pub(crate) fn sentence(&self) -> String {
        let message = shortened(&one_line(&self.message), SENTENCE);
        if message.is_empty() { self.code.clone() } else { format!("{message} ({})", self.code) }
    }
}

impl Event {
    /// The move, and how it looks: `queued → ▷ dispatched`, or one state if it moved nothing.
    pub(crate) fn step(&self) -> (String, Style) {
        let (shape, style) = state_look(&self.to);
        let step = match self.from.as_deref() {
            Some(from) if from != self.to => format!("{from} → {shape} {}", self.to),
            _ => format!("{shape} {}", self.to),
        };
        (step, style)
    }

    /// What else is worth knowing, in a few words.
    pub(crate) fn short(&self, times: Times) -> String {
        let fact = &self.fact;
        let text = |name: &str| fact[name].as_str().unwrap_or_default();
        let time =
            |name: &str| text(name).parse().map_or_else(|_| String::new(), |at| times.show(at));
        let failure = || serde_json::from_value::<Failed>(fact["failure"].clone()).ok();
        let failure = || failure().map(|failed| failed.sentence()).unwrap_or_default();
        match text("type") {
            "created" if self.attempt > 1 => format!("attempt {} of its task", self.attempt),
            "claimed" => format!("epoch {}", self.epoch),
            "interrupted" if fact["counted"] == false => "does not count as its fault".to_owned(),
            "parked" => parked(&fact["wait"], times),
            "woken" => format!("by {}", text("how")),
            "retry" => format!("{}; next {}", failure(), time("next_retry_at")),
            "buried" if self.cause == "dlq_written" => text("dlq_id").to_owned(),
            "buried" if self.cause == "dlq_closed" => String::new(),
            "buried" => failure(),
            "cancel_requested" => {
                reason(text("reason"), &format!("grace ends {}", time("grace_until")))
            }
            "cancelled" => reason(text("reason"), &failure()),
            _ => String::new(),
        }
    }
}

/// What a job waits for.
pub(crate) fn waits(wait: &Wait, times: Times) -> String {
    let until = wait.until.map(|until| times.show(until));
    match (&wait.on, until) {
        (WaitOn::Time, Some(until)) => format!("for its time ({until})"),
        (on, Some(until)) => format!("for {on} (gives up {until})"),
        (on, None) => format!("for {on}"),
    }
}

fn parked(wait: &Value, times: Times) -> String {
    let wait = serde_json::from_value(wait.clone());
    wait.map_or_else(|_| String::new(), |wait| waits(&wait, times))
}

/// What somebody said, and what else there is to say.
fn reason(words: &str, else_said: &str) -> String {
    match (words.is_empty(), else_said.is_empty()) {
        (true, _) => else_said.to_owned(),
        (false, true) => format!("\"{}\"", one_line(words)),
        (false, false) => format!("\"{}\", {else_said}", one_line(words)),
    }
}

/// A text that cannot move the cursor.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .map(|it| if it.is_control() { ' ' } else { it })
        .collect::<String>()
        .trim()
        .to_owned()
}
