//! The inbox: what made no job is kept and told, and nothing was set aside.

use serde::Deserialize;
use windlass_kernel::JobId;

use super::{
    Invariant, Report,
    values::{InboxPair, InboxRow, Line},
};

/// What a line tells of an enqueue that made no job: a second reader, as for lines about jobs.
#[derive(Deserialize)]
struct InboxLine {
    inbox: String,
    job_id: JobId,
    existing: Option<JobId>,
    code: Option<String>,
    why: Option<String>,
}

/// Does the line tell of the inbox, and of no job's history?
pub(super) fn is_line(text: &str) -> bool {
    text.starts_with("{\"inbox\":")
}

/// Checks a result and the event that tells it.
pub(crate) fn check(pair: &InboxPair, report: &mut Report) {
    let event = pair.event;
    match (&pair.row, &pair.line) {
        (None, None) => {}
        (None, Some(_)) => {
            report.add(
                Invariant::InboxTold,
                format!("event {event} tells of a result that is not there"),
            );
        }
        (Some(row), None) => {
            let sentence =
                format!("was given out and made no job, which event {event} does not tell");
            report.add_job(Invariant::InboxTold, row.job_id, sentence, &[], None);
        }
        (Some(row), Some(line)) => compare(row, line, report),
    }
    let kept = pair.row.as_ref().filter(|row| row.outcome != "hit" && !row.is_kept);
    if let Some(row) = kept {
        let sentence = format!("was {}, and what it asked for is lost", row.outcome);
        report.add_job(Invariant::InboxTold, row.job_id, sentence, &[], None);
    }
}

fn compare(row: &InboxRow, line: &Line, report: &mut Report) {
    let mut add = |rule, sentence: String| {
        report.add_job(rule, row.job_id, sentence, std::slice::from_ref(line), None);
    };
    let told: InboxLine = match serde_json::from_str(&line.text) {
        Ok(told) => told,
        Err(error) => {
            return add(Invariant::Readable, format!("is told in a line that is none: {error}"));
        }
    };
    if line.tenant != row.tenant {
        let sentence = format!("belongs to {} and is told to {}", row.tenant, line.tenant);
        add(Invariant::Tenant, sentence);
    }
    let alike = told.inbox == row.outcome
        && told.job_id == row.job_id
        && told.existing == row.existing
        && (&told.code, &told.why) == (&row.code, &row.why)
        && line.at == row.at;
    if !alike {
        add(
            Invariant::InboxTold,
            format!("was {}, and its event says something else", row.outcome),
        );
    }
    if (row.outcome == "hit") != row.code.is_none()
        || row.outcome != "refused" && row.existing.is_none()
    {
        add(Invariant::InboxTold, format!("was {} without a reason or without a job", row.outcome));
    }
}
