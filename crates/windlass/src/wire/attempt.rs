//! The attempts of a job.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_kernel::{Actor, Attempt, AttemptState, Epoch, Job, Payload, Timestamp, WorkerId};

use super::{FailureDocument, raw};

/// One execution of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AttemptDocument {
    /// Which one it is, from 1.
    pub attempt: u32,
    /// Where it stands.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub state: AttemptState,
    /// The last epoch that worked on it.
    #[cfg_attr(feature = "schema", schemars(with = "u64"))]
    pub epoch: Epoch,
    /// Who claimed it first.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub first_worker: Option<WorkerId>,
    /// Who claimed it last: another worker, if the first one crashed or gave it back. Of a history of more than 4,000
    /// events, those in the middle are not looked through: what they alone tell is null.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub last_worker: Option<WorkerId>,
    /// Who ended it, as `worker:<id>`, `user:<name>`, `recovery` or `scheduler`.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub ended_by: Option<Actor>,
    /// When it first started.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub finished_at: Option<Timestamp>,
    /// How it failed.
    pub error: Option<FailureDocument>,
    /// Figures that the handler gave.
    #[cfg_attr(feature = "schema", schemars(with = "Option<serde_json::Value>"))]
    pub stats: Option<Box<RawValue>>,
}

impl AttemptDocument {
    /// The attempt of `job`. Who had it in hand is told beside it.
    pub fn into_attempt(self, job: &Job) -> Attempt {
        let stats = self.stats.map(|text| Payload::parse(text.get(), usize::MAX));
        Attempt {
            job_id: job.id,
            tenant: job.spec.tenant.clone(),
            task_id: job.spec.task_id.clone(),
            attempt: self.attempt,
            state: self.state,
            epoch: self.epoch,
            started_at: self.started_at,
            finished_at: self.finished_at,
            failure: self.error.map(Into::into),
            stats: stats.and_then(Result::ok),
        }
    }
}

impl From<Attempt> for AttemptDocument {
    /// Who had it in hand is not known here.
    fn from(attempt: Attempt) -> Self {
        Self {
            attempt: attempt.attempt,
            state: attempt.state,
            epoch: attempt.epoch,
            first_worker: None,
            last_worker: None,
            ended_by: None,
            started_at: attempt.started_at,
            finished_at: attempt.finished_at,
            error: attempt.failure.as_ref().map(FailureDocument::from),
            stats: attempt.stats.and_then(|stats| raw(stats.as_str().to_owned())),
        }
    }
}
