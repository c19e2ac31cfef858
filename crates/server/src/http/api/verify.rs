//! Verify: is the history of a job the one that was written?

use schemars::JsonSchema;
use serde::Serialize;
use windlass_kernel::{Digest, JobId};
use windlass_store::read::BrokenLink;

use crate::http::core::{
    problem::Problem,
    route::{Answer, Call},
};

/// What came of following a job's chain of hashes from its first event to its last.
#[derive(Serialize, JsonSchema)]
pub(crate) struct VerifiedDocument {
    /// The job.
    #[schemars(with = "String")]
    job_id: JobId,
    /// Is the history the one that was written?
    whole: bool,
    /// How many events there are.
    events: u64,
    /// The hash that the last event led to when it was written. Kept elsewhere, it tells later whether anything up to here
    /// was changed.
    #[schemars(with = "String")]
    head: Digest,
    /// The first event that does not follow from what is before it; null, if the history is whole.
    broken_at: Option<BrokenDocument>,
}

/// The first event that does not follow from what is before it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct BrokenDocument {
    /// The number that the event has, or should have.
    number: u64,
    /// What should be there: a hash, a number, a state or a time.
    expected: String,
    /// What is there; null, if it is nothing that can be told.
    found: Option<String>,
    /// What is wrong, in words.
    why: String,
}

impl From<BrokenLink> for BrokenDocument {
    fn from(link: BrokenLink) -> Self {
        let BrokenLink { number, expected, found, why } = link;
        Self { number, expected, found, why }
    }
}

/// `GET /api/v1/jobs/{id}/verify`
pub(crate) async fn verify(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    let verified = call.engine().store().verify(call.scope(), id).await?;
    let verified = verified.ok_or_else(|| Problem::not_found("job").of_job(id))?;
    Ok(Answer::ok(&VerifiedDocument {
        job_id: id,
        whole: verified.is_whole(),
        events: verified.events,
        head: verified.head,
        broken_at: verified.broken_at.map(BrokenDocument::from),
    }))
}
