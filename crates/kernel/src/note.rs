//! Notes: facts about something that is not a job, such as a schedule that fired or a rule that was changed.
//!
//! A note is written in the same commit as what it tells of, and never changes. It is in no job's history and in
//! no chain of hashes: whatever it is about has no row that a fold could rebuild.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    Actor, By, DlqId, JobId, TenantId, TraceId,
    ids::{RuleName, ScheduleName, TokenId},
};

/// A fact about something that is not a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Who it belongs to.
    pub tenant: TenantId,
    /// What it is about.
    pub about: About,
    /// What happened, in one word of ours.
    pub what: &'static str,
    /// Who did it, and in which request.
    pub by: By,
    /// The job that came of it, if one did.
    pub job_id: Option<JobId>,
    /// What else is worth knowing.
    pub detail: Map<String, Value>,
}

/// What a note is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    /// A schedule, by its name.
    Schedule(ScheduleName),
    /// A rule about who may claim what, by its name.
    Rule(RuleName),
    /// A token, by its id.
    Token(TokenId),
    /// A dead letter, by its id.
    Letter(DlqId),
    /// The clock that the store follows.
    Clock,
}

impl About {
    /// The word for what kind of thing it is.
    pub const fn kind(&self) -> &'static str {
        match self {
            About::Schedule(_) => "schedule",
            About::Rule(_) => "rule",
            About::Token(_) => "token",
            About::Letter(_) => "letter",
            About::Clock => "clock",
        }
    }

    /// Its name.
    pub fn name(&self) -> Cow<'_, str> {
        match self {
            About::Schedule(name) => name.as_str().into(),
            About::Rule(name) => name.as_str().into(),
            About::Token(id) => id.to_string().into(),
            About::Letter(id) => id.to_string().into(),
            About::Clock => "clock".into(),
        }
    }
}

/// How a note stands in the log. `about` comes first, which tells it from every other line.
#[derive(Serialize)]
struct Line<'a> {
    about: &'static str,
    name: Cow<'a, str>,
    what: &'static str,
    actor: &'a Actor,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<&'a TraceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_id: Option<JobId>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    detail: &'a Map<String, Value>,
}

impl Note {
    /// A note with nothing else worth knowing.
    pub fn new(tenant: TenantId, about: About, what: &'static str, by: By) -> Self {
        Self { tenant, about, what, by, job_id: None, detail: Map::new() }
    }

    /// The same, with one more thing worth knowing.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(field.to_owned(), value.into());
        self
    }

    /// Does it tell what a person did? What comes of that by itself, slot by slot, is not meant.
    pub fn is_act(&self) -> bool {
        let is_done = match self.what {
            "fired" => self.detail.contains_key("trigger"),
            "skipped" | "ended" => false,
            _ => true,
        };
        is_done && matches!(self.by.actor, Actor::User(_))
    }

    /// The object that stands for it in the log.
    pub fn line(&self) -> String {
        let line = Line {
            about: self.about.kind(),
            name: self.about.name(),
            what: self.what,
            actor: &self.by.actor,
            trace_id: self.by.trace_id.as_ref(),
            job_id: self.job_id,
            detail: &self.detail,
        };
        serde_json::to_string(&line).expect("a note is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_an_object_that_says_first_what_it_is_about() {
        let about = About::Schedule(ScheduleName::new("nightly \"one\"").unwrap());
        let tenant = TenantId::new("acme").unwrap();
        let note = Note::new(tenant, about, "skipped", Actor::Scheduler.into());
        assert_eq!(
            note.line(),
            r#"{"about":"schedule","name":"nightly \"one\"","what":"skipped","actor":"scheduler"}"#
        );
        let note = Note { job_id: Some(JobId::from_u128(7)), ..note.with("reason", "overlap") };
        let end = r#""job_id":"job_00000000000000000000000007","detail":{"reason":"overlap"}}"#;
        assert!(note.line().ends_with(end), "{}", note.line());
    }
}
