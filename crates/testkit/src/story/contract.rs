//! Contracts: how a story looks at history in the words of others.

use serde_json::Value;
use windlass_kernel::{Event, State};

use super::words::{Result, unknown};

/// The event as `contract` shows it; as Windlass keeps it, if none is named.
pub(super) fn event(contract: Option<&str>, event: &Event) -> Result<Value> {
    match contract {
        None => serde_json::to_value(event).map_err(|error| error.to_string()),
        Some(other) => unknown("contract", other, "none yet"),
    }
}

/// The states of contract jobs.
const STATUSES: [&str; 8] = [
    "queued",
    "running",
    "retrying",
    "succeeded",
    "dlq_pending",
    "dlq_recorded",
    "failed",
    "cancelled",
];

/// Checks a status of contract jobs.
pub(super) fn status(word: &str) -> Result<&'static str> {
    let known = STATUSES.into_iter().find(|status| *status == word);
    known.map_or_else(|| unknown("status", word, &STATUSES.join(" ")), Ok)
}

/// The way of a job in the words of contract jobs: `status_transition` of a replay.
///
/// A status stands once for each time that the job came to it. What the contract does not see (a lease
/// that was granted, a wait, an interruption) makes no step.
pub(super) fn status_transition(events: &[Event]) -> Vec<&'static str> {
    let mut way: Vec<&'static str> = events.iter().map(status_after).collect();
    way.dedup();
    way
}

fn status_after(event: &Event) -> &'static str {
    match event.to {
        State::Scheduled | State::Queued | State::Dispatched if !event.started_after() => "queued",
        State::Scheduled
        | State::Queued
        | State::Dispatched
        | State::Running
        | State::Waiting
        | State::Interrupted => "running",
        State::RetryScheduled => "retrying",
        State::DlqPending => "dlq_pending",
        State::DlqRecorded => "dlq_recorded",
        State::Succeeded | State::Partial => "succeeded",
        State::Failed => "failed",
        State::Cancelled => "cancelled",
    }
}
