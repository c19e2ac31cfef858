//! Reads a line of the log: a second reader, so that what one writes wrongly the other does not excuse.

use std::sync::Arc;

use serde::Deserialize;
use windlass_kernel::{Actor, Cause, Digest, Epoch, Event, Fact, JobId, Spec, State, TraceId};

use super::values::Line;

type Parts<'a> = (
    &'a str,
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
    Option<&'a serde_json::value::RawValue>,
);

#[derive(Deserialize)]
struct Created {
    created: Digest,
    attempt: u32,
}

/// An event, and for a creation the digest of what was asked for.
pub(super) struct EventLine {
    pub(super) event: Event,
    pub(super) created: Option<Digest>,
}

/// The job that a line speaks of.
pub(super) fn job_of(text: &str) -> Option<JobId> {
    format!("{}{}", JobId::PREFIX, text.get(2..28)?).parse().ok()
}

/// The number of an event and the state that it led to, whatever job it speaks of.
pub(super) fn number_and_state(text: &str) -> Option<(u64, State)> {
    serde_json::from_str::<Parts<'_>>(text).ok().map(|parts| (parts.1, parts.4))
}

/// Why a job moved, if a person moved it, and whether that made the job.
pub(super) fn cause_of_person(text: &str) -> Option<(Cause, bool)> {
    let parts: Parts<'_> = serde_json::from_str(text).ok()?;
    matches!(parts.9, Actor::User(_)).then_some((parts.2, parts.3.is_none()))
}

/// Reads a line whole. The spec of its job stands in the job's row.
pub(super) fn read(line: &Line, spec: &Arc<Spec>) -> Result<EventLine, String> {
    let parts: Parts<'_> = serde_json::from_str(&line.text).map_err(|error| error.to_string())?;
    let (id, number, cause, from, to, attempt, retry_count, epoch, started, actor, trace_id, fact) =
        parts;
    let job_id = format!("{}{id}", JobId::PREFIX).parse::<JobId>();
    let mut created = None;
    let fact = match fact.map(serde_json::value::RawValue::get) {
        None => Fact::Plain,
        Some(text) if from.is_none() => {
            let fact: Created = serde_json::from_str(text).map_err(|error| error.to_string())?;
            created = Some(fact.created);
            Fact::Created { spec: spec.clone(), attempt: fact.attempt }
        }
        Some(text) => serde_json::from_str(text).map_err(|error| error.to_string())?,
    };
    let event = Event {
        job_id: job_id.map_err(|refusal| refusal.to_string())?,
        number,
        at: line.at,
        cause,
        from,
        to,
        attempt,
        retry_count,
        epoch,
        started: started != 0,
        actor,
        trace_id,
        fact,
    };
    Ok(EventLine { event, created })
}
