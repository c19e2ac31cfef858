//! Events, failures and waits of a job as people look at them: the documents of the API, said in short.

use anstyle::Style;
use serde_json::Value;
use windlass::wire::{EventDocument, FailureDocument};
use windlass_kernel::{
    Cause,
    job::{Wait, WaitOn},
};

use crate::cli::look::{table::shortened, times::Times, view::state_look};

/// One fact of a job's history. What else is worth knowing is taken as it comes, so that a newer server may tell more.
pub(crate) type Event = EventDocument<Value>;

/// How much of a message is told in a sentence.
const SENTENCE: usize = 200;

/// What went wrong: the sentence and the code.
pub(crate) fn sentence(failure: &FailureDocument) -> String {
    let FailureDocument { code, message, .. } = failure;
    let message = shortened(&one_line(message), SENTENCE);
    if message.is_empty() { code.clone() } else { format!("{message} ({code})") }
}

/// The move of an event, and how it looks: `queued → ▷ dispatched`, or one state if it moved nothing.
pub(crate) fn step(event: &Event) -> (String, Style) {
    let (shape, style) = state_look(event.to.as_str());
    let step = match event.from {
        Some(from) if from != event.to => format!("{from} → {shape} {}", event.to),
        _ => format!("{shape} {}", event.to),
    };
    (step, style)
}

/// What failed, if the event tells of a failure.
pub(crate) fn failure(event: &Event) -> Option<FailureDocument> {
    serde_json::from_value(event.fact["failure"].clone()).ok()
}

/// What else is worth knowing of an event, in a few words.
pub(crate) fn short(event: &Event, times: Times) -> String {
    let fact = &event.fact;
    let text = |name: &str| fact[name].as_str().unwrap_or_default();
    let time = |name: &str| text(name).parse().map_or_else(|_| String::new(), |at| times.show(at));
    let failure = || failure(event).as_ref().map(sentence).unwrap_or_default();
    match text("type") {
        "created" if event.attempt > 1 => format!("attempt {} of its task", event.attempt),
        "claimed" => format!("epoch {}", event.epoch),
        "interrupted" if fact["counted"] == false => "does not count as its fault".to_owned(),
        "parked" => parked(&fact["wait"], times),
        "woken" => format!("by {}", text("how")),
        "retry" => format!("{}; next {}", failure(), time("next_retry_at")),
        "buried" if event.cause == Cause::DlqWritten => text("dlq_id").to_owned(),
        "buried" if event.cause == Cause::DlqClosed => String::new(),
        "buried" => failure(),
        "cancel_requested" => {
            reason(text("reason"), &format!("grace ends {}", time("grace_until")))
        }
        "cancelled" => reason(text("reason"), &failure()),
        _ => String::new(),
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
