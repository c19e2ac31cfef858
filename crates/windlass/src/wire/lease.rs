//! Leases: what a worker elsewhere says about the jobs that it holds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{
    Epoch, JobId, Payload, Refusal, Timestamp, WorkerId,
    ops::{Outcome, Settle},
    time::duration_ms_option,
};

use super::{ErrorBody, raw_payload};

/// Leases that something is to happen to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeasesBody<T> {
    /// The worker that holds them. It need not be said; another one than the holder is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// At most 1,000.
    pub leases: Vec<T>,
}

/// One lease.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LeaseBody {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
}

/// A lease that is given up for some time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WaitEntry {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// When it goes on.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub until: Timestamp,
}

/// Leases that are to be kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "RenewBody"))]
#[serde(deny_unknown_fields)]
pub struct RenewBody<E = RenewEntry> {
    /// The worker: without `leases` all that it holds is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub worker_id: Option<WorkerId>,
    /// How long from now; 30,000, if nothing is said.
    #[serde(rename = "lease_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub lease: Option<Duration>,
    /// At most 1,000; all of the worker, if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leases: Option<Vec<E>>,
}

/// A lease that is to be kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct RenewEntry {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// Is it a sign of life of the handler, too?
    #[serde(default)]
    pub heartbeat: bool,
    /// How far the handler has come, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub progress: Option<Box<RawValue>>,
}

/// How an execution ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SettleEntry {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub job_id: JobId,
    /// The epoch of the lease.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// How it ended.
    pub outcome: OutcomeWord,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub result: Option<Box<RawValue>>,
    /// What is left to do, if it ended in part.
    #[serde(default, deserialize_with = "even_null", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub remaining: Option<Box<RawValue>>,
    /// What went wrong, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Why it stopped, if it was cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Figures for the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub stats: Option<Box<RawValue>>,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutcomeWord {
    /// Done.
    Succeeded,
    /// Done in part.
    Partial,
    /// Not done.
    Failed,
    /// It stopped because it was asked to.
    Cancelled,
}

/// A null that is sent is a value.
fn even_null<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl SettleEntry {
    /// The entry that tells how an execution ended.
    pub fn of(op: &Settle) -> Result<Self, Refusal> {
        let text = |payload: &Option<Payload>| payload.as_ref().map(raw_payload).transpose();
        let (mut result, mut remaining, mut error, mut reason) = (None, None, None, None);
        let outcome = match &op.outcome {
            Outcome::Succeeded { result: out } => {
                result = text(out)?;
                OutcomeWord::Succeeded
            }
            Outcome::Partial { result: out, remaining: rest } => {
                (result, remaining) = (text(out)?, Some(raw_payload(rest)?));
                OutcomeWord::Partial
            }
            Outcome::Failed(failure) => {
                error = Some(ErrorBody::from(failure));
                OutcomeWord::Failed
            }
            Outcome::Cancelled { reason: why } => {
                reason.clone_from(why);
                OutcomeWord::Cancelled
            }
        };
        let (job_id, epoch, stats) = (op.job_id, op.epoch, text(&op.stats)?);
        Ok(Self { job_id, epoch, outcome, result, remaining, error, reason, stats })
    }

    /// Figures for the attempt.
    pub fn stats(&self) -> Result<Option<Payload>, Refusal> {
        payload(self.stats.as_deref())
    }

    /// How it ended. What does not belong to this outcome is refused.
    pub fn into_outcome(self) -> Result<Outcome, Refusal> {
        let result = payload(self.result.as_deref())?;
        let unwanted = |field, is_there: bool| match is_there {
            true => Err(Refusal::invalid(field, "does not belong to this outcome")),
            false => Ok(()),
        };
        if !matches!(self.outcome, OutcomeWord::Failed) {
            unwanted("error", self.error.is_some())?;
        }
        if !matches!(self.outcome, OutcomeWord::Partial) {
            unwanted("remaining", self.remaining.is_some())?;
        }
        match self.outcome {
            OutcomeWord::Succeeded => Ok(Outcome::Succeeded { result }),
            OutcomeWord::Partial => {
                let needed = || Refusal::invalid("remaining", "is needed: what is left to do?");
                let remaining = payload(self.remaining.as_deref())?.ok_or_else(needed)?;
                Ok(Outcome::Partial { result, remaining })
            }
            OutcomeWord::Failed => {
                unwanted("result", result.is_some())?;
                let needed = || Refusal::invalid("error", "is needed: what went wrong?");
                Ok(Outcome::Failed(self.error.ok_or_else(needed)?.try_into()?))
            }
            OutcomeWord::Cancelled => {
                unwanted("result", result.is_some())?;
                Ok(Outcome::Cancelled { reason: self.reason })
            }
        }
    }
}

fn payload(text: Option<&RawValue>) -> Result<Option<Payload>, Refusal> {
    text.map(|text| Payload::parse(text.get(), Payload::MAX_BYTES_DEFAULT)).transpose()
}
