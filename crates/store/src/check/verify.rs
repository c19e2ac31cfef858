//! One job's chain of hashes, made anew from its lines: does it lead to the head that the job's row keeps?
//!
//! Of a chain only the head is kept. Where lines do not follow from each other, the first that does not is named. Where
//! they do and lead to another head, one of them was changed, and nobody can say which: then the last is named.

use windlass_kernel::{Digest, Event, Job, JobId, Timestamp};

use super::{line, moves::is_legal, values::Line};
use crate::{
    log::{self, Chain, NO_CHAIN, extend, spec_digest},
    read::{BrokenLink, Verified},
};

/// Follows the chain of a job from its first line to its last.
pub(crate) fn verify(job: &Job, head: Chain, lines: &[Line]) -> Verified {
    Verified {
        job_id: job.id,
        events: lines.len() as u64,
        head: Digest::from_bytes(head),
        broken_at: first_break(job, head, lines).err(),
    }
}

/// The lines of a log row that speak of a job. A row that cannot be read has one line that cannot be read.
pub(crate) fn lines_of(row: (u64, String, Timestamp, &str), job_id: JobId) -> Vec<Line> {
    let (log_id, tenant, at, events) = row;
    let line = |text: &str| Line { log_id, tenant: tenant.clone(), at, text: text.to_owned() };
    match log::lines(events) {
        Ok(lines) => {
            let texts = lines.into_iter().map(serde_json::value::RawValue::get);
            texts.filter(|text| log::speaks_of(text, job_id)).map(line).collect()
        }
        Err(_) => vec![line("")],
    }
}

/// Lines by the numbers that they give themselves, whatever the order of their log rows. One that cannot be read stays
/// behind the one before it.
#[cfg(feature = "postgres")]
pub(crate) fn in_order(mut lines: Vec<Line>) -> Vec<Line> {
    lines.sort_by_key(|line| line.log_id);
    let mut last = 0;
    let mut numbered: Vec<(u64, Line)> = Vec::with_capacity(lines.len());
    for line in lines {
        last = line::number_and_state(&line.text).map_or(last, |(number, _)| number);
        numbered.push((last, line));
    }
    numbered.sort_by_key(|(number, _)| *number);
    numbered.into_iter().map(|(_, line)| line).collect()
}

fn first_break(job: &Job, head: Chain, lines: &[Line]) -> Result<(), BrokenLink> {
    let (mut chain, mut before): (_, Option<Event>) = (NO_CHAIN, None);
    for (line, number) in lines.iter().zip(1..) {
        let event = follow(job, before.as_ref(), line, number)?;
        chain = extend(chain, line.at, &line.text);
        before = Some(event);
    }
    let (found, last) = (lines.len() as u64, job.version);
    if found < last {
        let number = found + 1;
        return Err(broken(number, format!("event {number}"), None, "it is missing"));
    }
    if found > last {
        let why = "the job's row does not know of it";
        return Err(broken(last + 1, "no more events", Some(format!("{found} events")), why));
    }
    if chain != head {
        let why = "each event follows from the one before, but they are not those that the chain was made of: \
                   this event or one before it was changed";
        let (expected, found) = (Digest::from_bytes(head), Digest::from_bytes(chain));
        return Err(broken(last, expected.to_string(), Some(found.to_string()), why));
    }
    Ok(())
}

/// The event of a line, if it can come after the one before.
fn follow(
    job: &Job,
    before: Option<&Event>,
    line: &Line,
    number: u64,
) -> Result<Event, BrokenLink> {
    let told = line::read(line, &job.spec)
        .map_err(|why| broken(number, "a line that can be read", None, why))?;
    let event = told.event;
    if event.number != number {
        let found = Some(format!("event {}", event.number));
        let why = "another event stands in its place";
        return Err(broken(number, format!("event {number}"), found, why));
    }
    if line.tenant != job.spec.tenant.as_str() {
        let why = "it stands in the log of another tenant";
        return Err(broken(number, job.spec.tenant.as_str(), Some(line.tenant.clone()), why));
    }
    let spec = spec_digest(&job.spec);
    if before.is_none() && told.created != Some(spec) {
        let found = told.created.map(|created| created.to_string());
        let why = "the job's row asks for something else than what was created";
        return Err(broken(number, spec.to_string(), found, why));
    }
    let from = before.map(|before| before.to);
    if event.from != from {
        let state = |state: Option<windlass_kernel::State>| {
            state.map_or("nothing", |state| state.as_str()).to_owned()
        };
        let why = "it leaves another state than the event before led to";
        return Err(broken(number, state(from), Some(state(event.from)), why));
    }
    if !is_legal(from, event.cause, event.to) {
        let found = Some(format!("{} by {}", event.to, event.cause));
        return Err(broken(number, "a move that a job can make", found, "no job moves like this"));
    }
    if let Some(before) = before.filter(|before| event.at < before.at) {
        let (expected, found) = (format!("{} or later", before.at), event.at.to_string());
        return Err(broken(number, expected, Some(found), "it is older than the one before"));
    }
    Ok(event)
}

fn broken(
    number: u64,
    expected: impl Into<String>,
    found: Option<String>,
    why: impl Into<String>,
) -> BrokenLink {
    BrokenLink { number, expected: expected.into(), found, why: why.into() }
}
