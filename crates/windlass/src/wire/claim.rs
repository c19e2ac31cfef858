//! Claims: a worker elsewhere asks for jobs, and what it gets.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use windlass_kernel::{Epoch, Kind, Queue, Refusal, Timestamp, WorkerId, time::duration_ms_option};
use windlass_store::Granted;

use super::{JobDocument, raw};

/// A worker wants jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// The worker: one session, with a fresh name at each start of its process.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub worker_id: WorkerId,
    /// The queues it listens to, at most 1,000; `default`, if nothing is said.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub queues: Vec<Queue>,
    /// The kinds it can run, at most 1,000; all, if nothing is said.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub kinds: Vec<Kind>,
    /// How many it wants at the most; 1, if nothing is said, and never more than 1,000, nor than have 8 MiB of payloads.
    pub max: Option<usize>,
    /// How long the leases last; 30,000, if nothing is said.
    #[serde(rename = "lease_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub lease: Option<Duration>,
    /// How long to wait for the first job, at most 30,000; not at all, if nothing is said.
    #[serde(rename = "wait_ms", with = "duration_ms_option", default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<u64>"))]
    pub wait: Option<Duration>,
    /// Start them at once: claim and start in one op.
    #[serde(default)]
    pub start: bool,
    /// The identity of this claim: any text of up to 100 characters, such as a UUID. Once it was granted jobs, the same again
    /// gets the leases of them that it still holds, and nothing else: for an hour, and while it holds any. So if no answer
    /// came, send the same again; for every other claim make a fresh one.
    pub claim_id: Option<String>,
    /// Other workers of the same process: a job that must be alone is alone in its process.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub neighbours: Vec<WorkerId>,
}

/// What a worker got.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Leases {
    /// None, if there was nothing.
    pub leases: Vec<LeaseDocument>,
    /// When to ask again at the latest, if a rule holds jobs back that time alone lets go; at once, if there is more than
    /// fits into one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub again_at: Option<Timestamp>,
    /// True, if this claim was granted jobs before: then these are the leases of them that it still holds, and it gets
    /// no others. Left out, if not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<bool>,
}

/// A job that a worker got.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LeaseDocument {
    /// The job, with its payload.
    pub job: JobDocument,
    /// The fencing token: every write about this job names it.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// The name of this grant.
    pub attempt_id: String,
    /// The key for systems downstream: the same for every execution of one try.
    pub execution_key: String,
    /// When the lease runs out.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub leased_until: Option<Timestamp>,
}

impl From<Granted> for LeaseDocument {
    fn from(granted: Granted) -> Self {
        let job = &*granted.job;
        Self {
            epoch: job.epoch,
            attempt_id: job.attempt_id(),
            execution_key: job.execution_key(),
            leased_until: job.lease.as_ref().map(|lease| lease.until),
            job: JobDocument { payload: raw(granted.payload), ..JobDocument::from(job) },
        }
    }
}

impl TryFrom<LeaseDocument> for Granted {
    type Error = Refusal;

    fn try_from(told: LeaseDocument) -> Result<Self, Refusal> {
        let payload = told.job.payload();
        Ok(Self { job: Arc::new(told.job.into_job()?), payload })
    }
}
