//! Acts: what a person did is found, and nothing else is.

use serde::Deserialize;
use windlass_kernel::{Actor, Cause};

use super::{line, note};

/// Does a line tell what a person did, as far as the line alone can say?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActKind {
    /// It does.
    Act,
    /// It tells that a person made a job. If that runs a task again, it is an act.
    MayBeAct,
}

/// What people do to jobs, in the words of events. This list is the checker's own.
const ACTS: [Cause; 6] = [
    Cause::CancelRequested,
    Cause::CancelCommand,
    Cause::RetryNow,
    Cause::RunNow,
    Cause::OperatorGaveUp,
    Cause::StepResolved,
];

/// What a note says of who did what.
#[derive(Deserialize)]
struct Note {
    what: String,
    actor: Actor,
    #[serde(default)]
    detail: serde_json::Map<String, serde_json::Value>,
}

/// Reads a line, if a person may have a part in it.
pub(super) fn read(text: &str) -> Option<ActKind> {
    if !text.contains("\"user:") {
        return None;
    }
    if note::is_line(text) {
        let note: Note = serde_json::from_str(text).ok()?;
        let is_act = match note.what.as_str() {
            "fired" => note.detail.contains_key("trigger"),
            "skipped" | "ended" => false,
            _ => true,
        };
        return (is_act && matches!(note.actor, Actor::User(_))).then_some(ActKind::Act);
    }
    let (cause, is_creation) = line::cause_of_person(text)?;
    if is_creation {
        return Some(ActKind::MayBeAct);
    }
    ACTS.contains(&cause).then_some(ActKind::Act)
}
