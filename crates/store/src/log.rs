//! How events stand in the log: one line each, an array of twelve values.
//!
//! A log row holds all events of one commit for one tenant, and their common time. A line has what the
//! event has, but for the spec in a creation: that stands in the job's row, which never changes it, and
//! the line has its digest. Lines of one job form a chain of hashes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use windlass_kernel::{
    Actor, Cause, Digest, Epoch, Event, Fact, JobId, Spec, State, Timestamp, TraceId,
};

use crate::{Error, row::Options};

/// The head of a job's chain of hashes.
pub(crate) type Chain = [u8; 32];

/// The chain of a job that has no event.
pub(crate) const NO_CHAIN: Chain = [0; 32];

/// Adds one line to a chain: it depends on all lines before, on the time and on every byte of the line.
pub(crate) fn extend(chain: Chain, at: Timestamp, line: &str) -> Chain {
    let mut hash = Sha256::new();
    hash.update(chain);
    hash.update(at.as_micros().to_be_bytes());
    hash.update(line.as_bytes());
    hash.finalize().into()
}

#[derive(Serialize, Deserialize)]
struct Line(
    String,
    u64,
    Cause,
    Option<State>,
    State,
    u32,
    u32,
    Epoch,
    u8,
    Actor,
    Option<TraceId>,
    Option<LineFact>,
);

/// A fact as the log keeps it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum LineFact {
    Created { created: Digest, attempt: u32 },
    Other(Fact),
}

/// Writes the line of an event at the end of `out`.
///
/// By hand, straight into the row's text, for it is on the way of every event.
pub(crate) fn encode(event: &Event, out: &mut String) {
    let quoted = |out: &mut String, word: &str| {
        out.push('"');
        out.push_str(word);
        out.push('"');
    };
    out.push('[');
    quoted(out, &event.job_id.to_string()[JobId::PREFIX.len()..]);
    out.push(',');
    number(out, event.number);
    out.push(',');
    quoted(out, event.cause.as_str());
    out.push(',');
    match event.from {
        Some(from) => quoted(out, from.as_str()),
        None => out.push_str("null"),
    }
    out.push(',');
    quoted(out, event.to.as_str());
    for value in [u64::from(event.attempt), u64::from(event.retry_count), event.epoch.get()] {
        out.push(',');
        number(out, value);
    }
    out.push_str(if event.started { ",1," } else { ",0," });
    json(out, &event.actor);
    out.push(',');
    json(out, &event.trace_id);
    out.push(',');
    match &event.fact {
        Fact::Plain => out.push_str("null"),
        Fact::Created { spec, attempt } => {
            let (created, attempt) = (spec_digest(spec), *attempt);
            json(out, &LineFact::Created { created, attempt });
        }
        other => json(out, other),
    }
    out.push(']');
}

fn number(out: &mut String, mut value: u64) {
    let start = out.len();
    loop {
        let digit = u8::try_from(value % 10).expect("one digit");
        out.insert(start, char::from(b'0' + digit));
        value /= 10;
        if value == 0 {
            return;
        }
    }
}

fn json<T: Serialize>(out: &mut String, value: &T) {
    out.push_str(&serde_json::to_string(value).expect("a line is plain data"));
}

/// The digest of what was asked for: every field on a line of its own, the rare ones as JSON.
///
/// No name holds a line break, so no two specs read alike.
pub fn spec_digest(spec: &Spec) -> Digest {
    let mut text = String::with_capacity(400);
    let mut line = |value: &str| {
        text.push_str(value);
        text.push('\n');
    };
    line(spec.tenant.as_str());
    line(spec.task_id.as_str());
    line(if spec.task_given { "given" } else { "own" });
    line(spec.kind.as_str());
    line(spec.queue.as_str());
    line(spec.idempotency_scope.as_str());
    line(spec.idempotency_key.as_str());
    line(spec.trace_id.as_str());
    line(&String::from(spec.payload_digest));
    if let Some(options) = Options::of(spec) {
        line(&serde_json::to_string(&options).expect("options are plain data"));
    }
    let numbers = [
        i64::from(spec.priority.0),
        i64::from(spec.max_retries),
        spec.due_at.as_micros(),
        spec.created_at.as_micros(),
    ];
    numbers.iter().for_each(|number| line(&number.to_string()));
    Digest::of(&text)
}

/// The lines of a log row, each with the job it speaks of.
pub(crate) fn lines(events: &str) -> Result<Vec<&serde_json::value::RawValue>, Error> {
    serde_json::from_str(events).map_err(|error| Error::Damaged(format!("a log row: {error}")))
}

/// Does a line speak of this job? It does not read the whole line.
pub(crate) fn speaks_of(line: &str, job_id: JobId) -> bool {
    let id = job_id.to_string();
    line.get(2..28) == Some(&id[JobId::PREFIX.len()..])
}

/// The event of a line. The spec of its job stands in the job's row.
pub(crate) fn decode(line: &str, at: Timestamp, spec: &Arc<Spec>) -> Result<Event, Error> {
    let damaged = |why: String| Error::Damaged(format!("a line of the log: {why}"));
    let line: Line = serde_json::from_str(line).map_err(|error| damaged(error.to_string()))?;
    let fact = match line.11 {
        None => Fact::Plain,
        Some(LineFact::Other(fact)) => fact,
        Some(LineFact::Created { created, attempt }) => {
            if created != spec_digest(spec) {
                return Err(damaged(format!("job_{} is not what was created", line.0)));
            }
            Fact::Created { spec: spec.clone(), attempt }
        }
    };
    let job_id = format!("{}{}", JobId::PREFIX, line.0);
    Ok(Event {
        job_id: job_id.parse().map_err(|_| damaged(format!("{job_id} is no job id")))?,
        number: line.1,
        at,
        cause: line.2,
        from: line.3,
        to: line.4,
        attempt: line.5,
        retry_count: line.6,
        epoch: line.7,
        started: line.8 != 0,
        actor: line.9,
        trace_id: line.10,
        fact,
    })
}
