//! How events stand in the log: one line each, an array of twelve values.
//!
//! A log row holds all events of one commit for one tenant, and their common time. A line has what the
//! event has, but for the spec in a creation: that stands in the job's row, which never changes it, and
//! the line has its digest. Lines of one job form a chain of hashes.
//!
//! A line of the inbox (`inbox::ResultLine`) is an object, and so is a note. They are in no chain.

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
/// By hand, straight into the row's text, for it is on the way of every event. `decode` reads what serde
/// would have written, and a test compares the two.
pub(crate) fn encode(event: &Event, out: &mut String) {
    out.push_str("[\"");
    out.push_str(ascii(&event.job_id.digits()));
    out.push_str("\",");
    number(out, event.number);
    out.push(',');
    word(out, event.cause.as_str());
    out.push(',');
    match event.from {
        Some(from) => word(out, from.as_str()),
        None => out.push_str("null"),
    }
    out.push(',');
    word(out, event.to.as_str());
    for value in [u64::from(event.attempt), u64::from(event.retry_count), event.epoch.get()] {
        out.push(',');
        number(out, value);
    }
    out.push_str(if event.started { ",1," } else { ",0," });
    match &event.actor {
        Actor::Worker(id) => name(out, "worker:", id.as_str()),
        Actor::User(who) => name(out, "user:", who.as_str()),
        Actor::Recovery => word(out, "recovery"),
        Actor::Scheduler => word(out, "scheduler"),
    }
    out.push(',');
    match &event.trace_id {
        Some(trace) => name(out, "", trace.as_str()),
        None => out.push_str("null"),
    }
    out.push(',');
    fact(out, &event.fact);
    out.push(']');
}

/// The facts of a usual life by hand, all others as they come.
fn fact(out: &mut String, fact: &Fact) {
    match fact {
        Fact::Plain => out.push_str("null"),
        Fact::Created { spec, attempt } => {
            out.push_str("{\"created\":");
            word(out, ascii(&spec_digest(spec).digits()));
            out.push_str(",\"attempt\":");
            number(out, u64::from(*attempt));
            out.push('}');
        }
        Fact::Claimed { epoch, claim_id, worker } => {
            out.push_str("{\"type\":\"claimed\",\"epoch\":");
            number(out, epoch.get());
            out.push_str(",\"claim_id\":");
            word(out, &String::from(*claim_id));
            out.push_str(",\"worker\":");
            name(out, "", worker.as_str());
            out.push('}');
        }
        Fact::Finished { settle, result, remaining } => {
            out.push_str("{\"type\":\"finished\",\"settle\":");
            word(out, ascii(&settle.digits()));
            for (field, digest) in [(",\"result\":", result), (",\"remaining\":", remaining)] {
                out.push_str(field);
                match digest {
                    Some(digest) => word(out, ascii(&digest.digits())),
                    None => out.push_str("null"),
                }
            }
            out.push('}');
        }
        other => out.push_str(&serde_json::to_string(other).expect("a line is plain data")),
    }
}

/// A word of ours, which needs no escapes.
fn word(out: &mut String, word: &str) {
    out.push('"');
    out.push_str(word);
    out.push('"');
}

/// A name that someone gave, after a word of ours.
fn name(out: &mut String, head: &str, name: &str) {
    if name.bytes().any(|byte| byte == b'"' || byte == b'\\') {
        let whole = [head, name].concat();
        out.push_str(&serde_json::to_string(&whole).expect("a name is text"));
    } else {
        // Names have no control characters, so nothing else is escaped.
        out.push('"');
        out.push_str(head);
        out.push_str(name);
        out.push('"');
    }
}

fn number(out: &mut String, mut value: u64) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    loop {
        from -= 1;
        digits[from] = b"0123456789"[(value % 10) as usize];
        value /= 10;
        if value == 0 {
            return out.push_str(ascii(&digits[from..]));
        }
    }
}

fn ascii(digits: &[u8]) -> &str {
    std::str::from_utf8(digits).expect("digits are ASCII")
}

/// The digest of what was asked for: every field on a line of its own, the rare ones as JSON.
///
/// No name holds a line break, so no two specs read alike.
pub fn spec_digest(spec: &Spec) -> Digest {
    let mut text = String::with_capacity(400);
    let payload = spec.payload_digest.digits();
    let names = [
        spec.tenant.as_str(),
        spec.task_id.as_str(),
        if spec.task_given { "given" } else { "own" },
        spec.kind.as_str(),
        spec.queue.as_str(),
        spec.idempotency_scope.as_str(),
        spec.idempotency_key.as_str(),
        spec.trace_id.as_str(),
        ascii(&payload),
    ];
    for name in names {
        text.push_str(name);
        text.push('\n');
    }
    if let Some(options) = Options::of(spec) {
        text.push_str(&serde_json::to_string(&options).expect("options are plain data"));
        text.push('\n');
    }
    let numbers = [
        i64::from(spec.priority.0),
        i64::from(spec.max_retries),
        spec.due_at.as_micros(),
        spec.created_at.as_micros(),
    ];
    for value in numbers {
        if value < 0 {
            text.push('-');
        }
        number(&mut text, value.unsigned_abs());
        text.push('\n');
    }
    Digest::of(&text)
}

/// The lines of a log row, each with the job it speaks of.
pub(crate) fn lines(events: &str) -> Result<Vec<&serde_json::value::RawValue>, Error> {
    serde_json::from_str(events).map_err(|error| Error::Damaged(format!("a log row: {error}")))
}

/// The line of this place in a log row.
pub(crate) fn line_at(events: &str, place: u64) -> Result<String, Error> {
    let lines = lines(events)?;
    let line = usize::try_from(place).ok().and_then(|place| lines.get(place));
    let line = line.ok_or_else(|| Error::Damaged(format!("a log row has no line {place}")))?;
    Ok(line.get().to_owned())
}

/// What stands in the place of a line that retention took. Event numbers are places, so one is needed.
pub(crate) const TAKEN: &str = "null";

/// The row of these lines without some of them.
pub(crate) fn without(
    lines: &[&serde_json::value::RawValue],
    is_gone: impl Fn(&str) -> bool,
) -> String {
    let lines = lines.iter().map(|line| line.get());
    let left: Vec<&str> = lines.map(|line| if is_gone(line) { TAKEN } else { line }).collect();
    format!("[{}]", left.join(","))
}

/// The job that a line speaks of.
pub(crate) fn job_of(line: &str) -> Option<JobId> {
    format!("{}{}", JobId::PREFIX, line.get(2..28)?).parse().ok()
}

/// May a person have had a part in what a line tells? It does not read the line.
pub(crate) fn names_a_person(line: &str) -> bool {
    line.contains("\"user:")
}

/// Does a line speak of this job? It does not read the whole line.
pub(crate) fn speaks_of(line: &str, job_id: JobId) -> bool {
    line.as_bytes().get(2..28) == Some(&job_id.digits())
}

/// The number of the event among those of its job. It does not read the whole line.
pub(crate) fn number_of(line: &str) -> Result<u64, Error> {
    let number = line.get(30..).and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    number.ok_or_else(|| damaged("it has no number"))
}

/// The event of a line. The spec of its job stands in the job's row.
pub(crate) fn decode(line: &str, at: Timestamp, spec: &Arc<Spec>) -> Result<Event, Error> {
    let line: Line = serde_json::from_str(line).map_err(damaged)?;
    let fact = match &line.11 {
        None => Fact::Plain,
        Some(LineFact::Other(fact)) => fact.clone(),
        Some(LineFact::Created { created, attempt }) => {
            if *created != spec_digest(spec) {
                return Err(damaged(format_args!("job_{} is not what was created", line.0)));
            }
            Fact::Created { spec: spec.clone(), attempt: *attempt }
        }
    };
    event_of(line, at, fact)
}

/// The event of a line whose job is not at hand: of a creation it does not tell what was asked for. None, if the line
/// is not of a job.
pub(crate) fn decode_alone(line: &str, at: Timestamp) -> Option<Event> {
    let line: Line = serde_json::from_str(line).ok()?;
    let fact = match &line.11 {
        None | Some(LineFact::Created { .. }) => Fact::Plain,
        Some(LineFact::Other(fact)) => fact.clone(),
    };
    event_of(line, at, fact).ok()
}

fn damaged(why: impl std::fmt::Display) -> Error {
    Error::Damaged(format!("a line of the log: {why}"))
}

fn event_of(line: Line, at: Timestamp, fact: Fact) -> Result<Event, Error> {
    let job_id = format!("{}{}", JobId::PREFIX, line.0);
    Ok(Event {
        job_id: job_id.parse().map_err(|_| damaged(format_args!("{job_id} is no job id")))?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_kernel::{Principal, WorkerId, ids::ClaimId};

    #[test]
    fn a_line_by_hand_is_what_serde_would_write() {
        let odd = ["w1", "a \"b\"", "back\\slash", "é/ß", "\u{2028}", "\u{feff}"];
        let digest = Digest::of("x");
        for (place, odd) in odd.into_iter().enumerate() {
            let worker = WorkerId::new(odd).unwrap();
            let facts = [
                Fact::Plain,
                Fact::Claimed {
                    epoch: Epoch::new(u64::MAX >> 11),
                    claim_id: ClaimId::from_u128(u128::MAX / 3),
                    worker: worker.clone(),
                },
                Fact::Finished { settle: digest, result: None, remaining: Some(digest) },
                Fact::Finished { settle: digest, result: Some(digest), remaining: None },
                Fact::Interrupted { counted: true },
            ];
            let actors = [
                Actor::Worker(worker),
                Actor::User(Principal::new(odd).unwrap()),
                Actor::Recovery,
                Actor::Scheduler,
            ];
            for (fact, actor) in facts
                .into_iter()
                .flat_map(|fact| actors.clone().into_iter().map(move |actor| (fact.clone(), actor)))
            {
                let event = Event {
                    job_id: JobId::from_u128(1 << (place * 20)),
                    number: 10u64.pow(u32::try_from(place).unwrap()),
                    at: Timestamp::MIN,
                    cause: Cause::WorkerClaim,
                    from: Some(State::Queued).filter(|_| place > 0),
                    to: State::Dispatched,
                    attempt: 1,
                    retry_count: 0,
                    epoch: Epoch::new(7),
                    started: place % 2 == 0,
                    actor,
                    trace_id: Some(TraceId::new(odd).unwrap()).filter(|_| place % 2 == 0),
                    fact,
                };
                let mut by_hand = String::new();
                encode(&event, &mut by_hand);
                assert_eq!(by_hand, by_serde(&event));
            }
        }
    }

    fn by_serde(event: &Event) -> String {
        let line = Line(
            event.job_id.to_string()[JobId::PREFIX.len()..].to_owned(),
            event.number,
            event.cause,
            event.from,
            event.to,
            event.attempt,
            event.retry_count,
            event.epoch,
            u8::from(event.started),
            event.actor.clone(),
            event.trace_id.clone(),
            Some(event.fact.clone()).filter(|fact| *fact != Fact::Plain).map(LineFact::Other),
        );
        serde_json::to_string(&line).unwrap()
    }
}
