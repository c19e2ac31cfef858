//! Jobs, events and refusals in the words of a contract.

use serde::Serialize;
use serde_json::value::RawValue;
use windlass::Error;
use windlass::wire::{EventDocument, JobDocument, raw};
use windlass_kernel::{
    Event, Job, Spec,
    contract::{Contract, ingest, jobs, runs, tasks},
};

use crate::http::core::problem::Problem;

/// A document as JSON.
pub(crate) type Json = Box<RawValue>;

fn json(document: &impl Serialize) -> Json {
    serde_json::value::to_raw_value(document).expect("a document is plain data")
}

/// The job in the words of the contract, or in our own.
pub(crate) fn job(contract: Option<&Contract>, job: &Job, payload: Option<String>) -> Json {
    let payload = payload.and_then(raw);
    match contract.map(|contract| contract.name) {
        Some("runs") => json(&runs::RunDocument::new(job)),
        Some("tasks") => json(&tasks::TaskDocument::new(job)),
        Some("jobs") => json(&jobs::JobDocument::new(job, payload.as_deref())),
        Some("ingest") => json(&ingest::IngestTaskDocument::new(job, ingest::Lineage::default())),
        _ => json(&JobDocument { payload, ..JobDocument::from(job) }),
    }
}

/// The event in the words of the contract, if it sees anything, or in our own. `position` is its place in the store.
pub(crate) fn event(
    contract: Option<&Contract>,
    event: Event,
    spec: &Spec,
    position: u64,
) -> Option<Json> {
    match contract.map(|contract| contract.name) {
        Some("runs") => runs::tell(&event, spec, position).as_ref().map(json),
        Some("tasks") => tasks::tell(&event, spec, position).as_ref().map(json),
        Some("jobs") => jobs::tell(&event, spec, position).as_ref().map(json),
        Some("ingest") => ingest::tell(&event, spec, position).as_ref().map(json),
        _ => Some(json(&EventDocument::new(event, Some(&spec.trace_id)))),
    }
}

/// What went wrong, with the code as the contract spells it.
pub(crate) fn problem(contract: Option<&Contract>, error: Error) -> Problem {
    let code = match (&error, contract) {
        (Error::Refused(refusal), Some(contract)) => Some(contract.code(refusal)),
        _ => None,
    };
    let mut problem = Problem::from(error);
    if let Some(code) = code {
        problem.code = code;
    }
    problem
}
