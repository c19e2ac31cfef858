//! Ops that are asked for together, and what became of each.

use serde::{Deserialize, Serialize};
use windlass_kernel::{DlqId, JobId, Timestamp};

/// Jobs that are asked for together.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "BatchBody"))]
#[serde(deny_unknown_fields)]
pub struct BatchBody<J = super::NewJobBody> {
    /// At most 1,000.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<super::NewJobBody>"))]
    pub jobs: Vec<J>,
}

/// What became of each op of a batch, in the order asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Results<T> {
    /// One for each.
    pub results: Vec<T>,
}

/// What became of one op.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OpResult {
    /// The job.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub job_id: Option<JobId>,
    /// Did it go well?
    pub ok: bool,
    /// The code of what went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What went wrong, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// May the same op succeed later?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// Of an enqueue: was the job there already?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hit: Option<bool>,
    /// Where the job stands, in the words of the contract that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// When its lease runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub leased_until: Option<Timestamp>,
    /// When it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub next_retry_at: Option<Timestamp>,
    /// Its dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub dlq_id: Option<DlqId>,
    /// Should the handler clean up and settle the job as cancelled?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_requested: Option<bool>,
}
