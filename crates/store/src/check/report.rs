//! What a check found: the violations, and how much was read.

use std::fmt;

use windlass_kernel::JobId;

use super::{Invariant, values::Line};

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// Rules that are broken, in the order found. No more than [`Report::KEPT_MAX`].
    pub violations: Vec<Violation>,
    /// How many more were found and not kept.
    pub more: u64,
    /// Jobs read.
    pub jobs: u64,
    /// Events read.
    pub events: u64,
    /// Log rows read.
    pub log_rows: u64,
    /// Dead letters read.
    pub letters: u64,
}

impl Report {
    /// A store with more violations than this needs no longer list.
    pub const KEPT_MAX: usize = 1_000;
    /// How many events are shown before the one that breaks a rule.
    const BEFORE: usize = 3;

    /// Is nothing wrong?
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }

    /// How many violations were found, kept or not.
    pub(super) fn found(&self) -> u64 {
        self.violations.len() as u64 + self.more
    }

    /// Something is wrong with the store as a whole.
    pub(crate) fn add(&mut self, invariant: Invariant, sentence: impl Into<String>) {
        let sentence = sentence.into();
        self.push(Violation { invariant, job: None, sentence, events: Vec::new() });
    }

    /// Something is wrong with a job, at the line of this place or at the last one.
    pub(crate) fn add_job(
        &mut self,
        invariant: Invariant,
        job: JobId,
        sentence: impl Into<String>,
        lines: &[Line],
        place: Option<usize>,
    ) {
        let place = place.unwrap_or(lines.len().saturating_sub(1));
        let end = lines.len().min(place + 2);
        let around = &lines[place.saturating_sub(Self::BEFORE).min(end)..end];
        let events = around.iter().map(ToString::to_string).collect();
        self.push(Violation { invariant, job: Some(job), sentence: sentence.into(), events });
    }

    fn push(&mut self, violation: Violation) {
        if self.violations.len() < Self::KEPT_MAX {
            self.violations.push(violation);
        } else {
            self.more += 1;
        }
    }
}

/// One broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The job that breaks it, if it is one job.
    pub job: Option<JobId>,
    /// How, in a sentence.
    pub sentence: String,
    /// The events around it, with their log rows and times.
    pub events: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.invariant)?;
        if let Some(job) = self.job {
            write!(f, "{job} ")?;
        }
        f.write_str(&self.sentence)?;
        self.events.iter().try_for_each(|event| write!(f, "\n    {event}"))
    }
}

/// `1 job`, `2 jobs`.
fn counted((count, one): (u64, &str)) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {one}{ending}")
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [jobs, events] = [(self.jobs, "job"), (self.events, "event")].map(counted);
        let [rows, letters] =
            [(self.log_rows, "log row"), (self.letters, "dead letter")].map(counted);
        write!(f, "{jobs}, {events} in {rows}, {letters}: ")?;
        match self.found() {
            0 => f.write_str("all rules hold"),
            found => f.write_str(&counted((found, "violation"))),
        }?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n{violation}"))
    }
}
