//! A late effect: what a worker that had lost its lease says came of a step that it had begun.

use crate::{Epoch, JobId, Timestamp, ids::StepKey};

use super::StepOutcome;

/// A fact that was handed in late. It changes no job: the attempt that lives now takes it into the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Whose step it is.
    pub job_id: JobId,
    /// The step.
    pub key: StepKey,
    /// The epoch that had begun it.
    pub epoch: Epoch,
    /// When it was handed in.
    pub at: Timestamp,
    /// What came of it.
    pub outcome: StepOutcome,
}
