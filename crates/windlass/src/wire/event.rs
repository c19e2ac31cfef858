//! Events: the facts of a job's history, and the feed of a whole store.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Actor, Cause, Epoch, Event, Fact, JobId, Refusal, State, Timestamp, TraceId,
};
use windlass_store::read::FeedEvent;

/// One fact of a job's history. A program that only shows it can read the fact as it comes: then a newer server may have
/// facts that it does not know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "EventDocument", description = "One fact of a job's history.")
)]
pub struct EventDocument<F = Fact> {
    /// The job it speaks of.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// Its place in the job's history, from 1.
    pub number: u64,
    /// When it happened.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// Why.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub cause: Cause,
    /// The state before; none at creation.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub from: Option<State>,
    /// The state after.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub to: State,
    /// The attempt it belongs to.
    pub attempt: u32,
    /// Retries used so far.
    pub retry_count: u32,
    /// The last epoch granted.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// Who did it.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub actor: Actor,
    /// The trace of the request behind it, or else of its job; null, if the job is no longer kept.
    pub trace_id: Option<String>,
    /// What else is worth knowing.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub fact: F,
}

impl EventDocument {
    /// The document of `event`, of a job with this trace.
    pub fn new(event: Event, of_job: Option<&TraceId>) -> Self {
        let trace_id = event.trace_id.as_ref().or(of_job);
        Self {
            trace_id: trace_id.map(ToString::to_string),
            job_id: event.job_id,
            number: event.number,
            at: event.at,
            cause: event.cause,
            from: event.from,
            to: event.to,
            attempt: event.attempt,
            retry_count: event.retry_count,
            epoch: event.epoch,
            actor: event.actor,
            fact: event.fact,
        }
    }

    /// The event; `started` says whether the job had ever started before it.
    pub fn into_event(self, started: bool) -> Result<Event, Refusal> {
        Ok(Event {
            job_id: self.job_id,
            number: self.number,
            at: self.at,
            cause: self.cause,
            from: self.from,
            to: self.to,
            attempt: self.attempt,
            retry_count: self.retry_count,
            epoch: self.epoch,
            started,
            actor: self.actor,
            trace_id: self.trace_id.map(TryInto::try_into).transpose()?,
            fact: self.fact,
        })
    }
}

/// One event of the feed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FeedDocument {
    /// Its number in the store.
    pub number: u64,
    /// Who it belongs to.
    pub tenant: String,
    /// When it happened.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub at: Timestamp,
    /// `job` for a fact of a job's history, `note` for all else.
    #[serde(rename = "type")]
    pub kind: String,
    /// The fact.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub payload: Box<RawValue>,
}

impl TryFrom<FeedDocument> for FeedEvent {
    type Error = Refusal;

    fn try_from(told: FeedDocument) -> Result<Self, Refusal> {
        let FeedDocument { number, tenant, at, payload, .. } = told;
        Ok(Self { number, tenant: tenant.try_into()?, at, line: payload.get().to_owned() })
    }
}
