//! Contracts: how a story looks at history in the words of others.

use serde::Serialize;
use serde_json::Value;
use windlass_kernel::{
    Event, Spec,
    contract::{ingest, jobs, runs, tasks},
};

use super::words::{Result, unknown};

/// The last event that `contract` sees, and what it tells of it; the last one as Windlass keeps it, if
/// no contract is named.
pub(super) fn last_event<'a>(
    contract: Option<&str>,
    events: &'a [Event],
    spec: &Spec,
) -> Result<(&'a Event, Value)> {
    let mut newest = events.iter().rev();
    let found = match contract {
        None => newest.next().map(|event| (event, json(event))),
        Some("runs") => {
            newest.find_map(|event| Some((event, json(&runs::tell(event, spec, 1)?.payload))))
        }
        Some("tasks") => {
            newest.find_map(|event| Some((event, json(&tasks::tell(event, spec, 1)?.payload))))
        }
        Some("jobs") => {
            newest.find_map(|event| Some((event, json(&jobs::tell(event, spec, 1)?.payload))))
        }
        Some("ingest") => {
            newest.find_map(|event| Some((event, json(&ingest::tell(event, spec, 1)?.payload))))
        }
        Some(other) => return unknown("contract", other, "runs tasks jobs ingest"),
    };
    found.ok_or_else(|| "it has no event yet".to_owned())
}

fn json<T: Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("events are plain data")
}

/// Checks a status of contract jobs.
pub(super) fn status(word: &str) -> Result<&'static str> {
    let states = jobs::CONTRACT.states;
    let known = states.iter().find(|status| **status == word);
    known.map_or_else(|| unknown("status", word, &states.join(" ")), |status| Ok(*status))
}
