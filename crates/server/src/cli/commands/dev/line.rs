//! One event as a line: when, which job, what kind, and what happened in words. A payload is never shown.

use serde::Deserialize;
use windlass_kernel::{
    Cause, Event, Fact, Failure, Timestamp,
    failure::{HANDLER_FAILED, PAYLOAD_UNFIT},
};
use windlass_store::read::FeedEvent;

use crate::{
    cli::look::{
        table::shortened,
        times::{clock, exact},
        view::{DIM, View, state_look},
    },
    demo,
};

/// What is known of a job without its history.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) kind: String,
    pub(super) queue: String,
    pub(super) due_at: Timestamp,
}

/// How wide the column of kinds is.
const KIND_WIDTH: usize = 16;

/// The line of an event of a job. None for what follows from the line before.
pub(super) fn of_event(event: &Event, known: Option<&Known>, view: &View) -> Option<String> {
    let words = words(event, known)?;
    let (shape, style) = state_look(event.to.as_str());
    let kind = shortened(known.map_or("?", |known| known.kind.as_str()), KIND_WIDTH);
    let id = event.job_id.to_string();
    let id = &id[id.len() - 6..];
    let style = if is_dull(event.cause) { DIM } else { style };
    let time = clock(event.at, view.times);
    // A command is left whole, so that it can be copied.
    let room = view.width.saturating_sub(time.len() + id.len() + KIND_WIDTH + 8).max(20);
    let words = if words.starts_with("windlass ") { words } else { shortened(&words, room) };
    Some(format!("{DIM}{time}  {id}{DIM:#}  {kind:<KIND_WIDTH$}  {style}{shape} {words}{style:#}"))
}

/// What is only a step on the way.
fn is_dull(cause: Cause) -> bool {
    matches!(cause, Cause::WorkerClaim | Cause::RetryDue | Cause::RecoveryResume | Cause::Due)
}

fn words(event: &Event, known: Option<&Known>) -> Option<String> {
    let attempt = event.attempt;
    let worker = match &event.fact {
        Fact::Claimed { worker, .. } => worker.to_string(),
        _ => String::new(),
    };
    let text = match event.cause {
        Cause::Enqueued => {
            format!("enqueued in {}", known.map_or("its queue", |known| known.queue.as_str()))
        }
        Cause::Scheduled => match known {
            Some(known) => format!("scheduled, due in {}", exact(known.due_at.since(event.at))),
            None => "scheduled".to_owned(),
        },
        Cause::Due => "its time has come".to_owned(),
        Cause::WorkerClaim => format!("claimed by {worker}"),
        Cause::RetryDue => format!("claimed by {worker} to try again"),
        Cause::RecoveryResume => format!("claimed by {worker} to go on"),
        Cause::Started if attempt > 1 => format!("running, attempt {attempt}"),
        Cause::Started => "running".to_owned(),
        Cause::ProcessRestart => "cut off: its process died".to_owned(),
        Cause::LeaseExpired => "cut off: nobody renewed its lease".to_owned(),
        Cause::Shutdown => "cut off: its worker shut down".to_owned(),
        Cause::Completed => "succeeded".to_owned(),
        Cause::DlqWritten => match &event.fact {
            Fact::Buried { dlq_id, .. } if known.is_some_and(|it| it.kind == demo::INVOICE) => {
                format!("windlass dlq requeue {dlq_id} --payload '{}'", demo::INVOICE_MENDED)
            }
            Fact::Buried { dlq_id, .. } => format!("windlass dlq show {dlq_id}"),
            _ => "its dead letter was written".to_owned(),
        },
        Cause::DlqClosed => return None,
        cause => match &event.fact {
            Fact::Retry { failure, next_retry_at, .. } => format!(
                "failed, tries again in {}: {}",
                exact(next_retry_at.since(event.at)),
                why(failure)
            ),
            Fact::Buried { failure, .. } => format!("in the dead letters: {}", why(failure)),
            Fact::Cancelled { reason: Some(reason), .. } => format!("cancelled: {reason}"),
            _ => in_the_middle(cause.meaning()),
        },
    };
    Some(one_line(&text))
}

/// Why it failed, without what may be a part of its payload.
fn why(failure: &Failure) -> String {
    match failure.code.as_str() {
        HANDLER_FAILED => failure.message.clone(),
        PAYLOAD_UNFIT => format!("{PAYLOAD_UNFIT}: the payload is not what the handler takes"),
        _ => failure.to_string(),
    }
}

/// What a schedule, a rule, a token or a dead letter says of itself.
#[derive(Deserialize)]
struct Noted {
    about: String,
    name: String,
    what: String,
}

/// The line of what is about something else than a job.
pub(super) fn of_note(told: &FeedEvent, view: &View) -> Option<String> {
    let noted: Noted = serde_json::from_str(&told.line).ok()?;
    // The name of a rule begins with its tenant: whoever has one need not read it.
    let usual = format!("{}/", windlass::Engine::TENANT_DEFAULT);
    let name = noted.name.strip_prefix(&usual).unwrap_or(&noted.name);
    let name = one_line(&format!("{} {name} {}", noted.about, noted.what));
    Some(format!("{DIM}{}  ------{DIM:#}  · {name}", clock(told.at, view.times)))
}

/// A sentence as a part of a line.
fn in_the_middle(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    let first = letters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}

/// A message of a handler must not move the cursor, nor fill the screen.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect();
    shortened(&text, 300)
}
