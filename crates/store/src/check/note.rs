//! Notes: each can be read, and is found by what it is about.

use serde::Deserialize;
use windlass_kernel::Actor;

use super::{Invariant, Report};

/// What a note says: a second reader, as for lines about jobs.
#[derive(Deserialize)]
pub(crate) struct NoteLine {
    pub(crate) about: String,
    pub(crate) name: String,
    #[serde(rename = "what")]
    _what: String,
    #[serde(rename = "actor")]
    _actor: Actor,
}

/// Is the line a note, and part of no job's history?
pub(super) fn is_line(text: &str) -> bool {
    text.starts_with("{\"about\":")
}

/// Reads a note.
pub(crate) fn read(event: u64, text: &str, report: &mut Report) -> Option<NoteLine> {
    let told = serde_json::from_str(text);
    if let Err(error) = &told {
        report.add(
            Invariant::Readable,
            format!("event {event} is a note that cannot be read: {error}"),
        );
    }
    told.ok()
}
