//! What people ask of a job: cancel it, try it again.

use serde::{Deserialize, Serialize};
use windlass_kernel::JobId;

/// How a job is to be cancelled.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CancelBody {
    /// Why.
    pub reason: Option<String>,
    /// Do not ask the handler first.
    pub force: bool,
    /// How long the handler may take to clean up; 30,000, if nothing is said.
    pub grace_ms: Option<u64>,
}

/// How a job is to be tried again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RetryBody {
    /// What is meant; what fits the state of the job, if nothing is said.
    pub op: Option<RetryOp>,
    /// The id of the job that a re-run makes, for a caller that makes it before its first try: sent again, it gives the
    /// same job.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub new_job_id: Option<JobId>,
}

/// How a job is to be tried again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RetryOp {
    /// A job that is scheduled for later is due now.
    Promote,
    /// A retry that is scheduled is due now.
    RetryNow,
    /// The task of a job that failed or was cancelled runs again, as a new job.
    Rerun,
}

/// Why something is done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReasonBody {
    /// In the caller's words.
    pub reason: Option<String>,
}
