//! A problem: what a server says when it cannot do what it is asked, as RFC 9457 has it.

use serde::{Deserialize, Serialize};
use windlass_kernel::{Class, JobId};

/// A problem document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProblemDocument {
    /// Where the code is explained.
    #[serde(rename = "type")]
    pub kind: String,
    /// What the code means.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What happened this time, and to what.
    pub detail: String,
    /// The code, for programs.
    pub code: String,
    /// What sort of problem it is.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub class: Class,
    /// May the same call succeed later?
    pub retryable: bool,
    /// The trace of this call.
    pub trace_id: String,
    /// The job it is about, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub job_id: Option<JobId>,
}
