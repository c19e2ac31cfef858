//! What a durable operation gives a handler when it gives no result.

use windlass_kernel::{
    Failure,
    failure::{EFFECT_UNKNOWN, WAIT_TIMED_OUT},
};

/// Why a durable operation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// It failed for good. The same failure is told again in every replay.
    #[error("{}: {}", .0.code, .0.message)]
    Failed(#[source] Failure),
    /// It may have happened and may not have: nobody knows. Given to code that asked for it (`OnUnknown::Hand`).
    #[error("what became of the step is unknown: {}", .0.message)]
    Unknown(#[source] Failure),
    /// It did not come in time.
    #[error("it did not come in time")]
    TimedOut,
    /// Whoever was waited for said no.
    #[error("{}: {}", .0.code, .0.message)]
    Rejected(#[source] Failure),
    /// The job is to be cancelled: clean up and return.
    #[error("the job is to be cancelled")]
    Cancelled,
}

impl StepError {
    /// The failure that the handler ends with, if it gives this error back.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            StepError::Failed(failure) | StepError::Unknown(failure) => Some(failure),
            StepError::Rejected(failure) => Some(failure),
            StepError::TimedOut | StepError::Cancelled => None,
        }
    }

    pub(super) fn of(failure: Failure) -> Self {
        match failure.code.as_str() {
            EFFECT_UNKNOWN => StepError::Unknown(failure),
            WAIT_TIMED_OUT => StepError::TimedOut,
            _ => StepError::Failed(failure),
        }
    }
}
