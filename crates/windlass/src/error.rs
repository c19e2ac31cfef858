//! Why the engine could not do what it was asked, told apart by what the caller does next.

use std::sync::Arc;

use windlass_kernel::{JobId, Refusal};
use windlass_store as store;

use crate::SubmitError;

/// The engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rules say no. Nothing changed; the refusal says what to do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store could not answer. Its error says whether anything was written and what to do next.
    #[error("the store did not answer")]
    Store(#[source] Arc<store::Error>),
    /// Too much is waiting. Nothing was written; send again later.
    #[error("too many writes are waiting")]
    Busy,
    /// The engine was closed, or its store has stopped. Nothing was written; open it again.
    #[error("the engine is closed")]
    Closed,
    /// The value could not be written as JSON, or what was read is not of the type that was asked for.
    #[error("{what} does not fit its type")]
    Json {
        /// What was written or read.
        what: &'static str,
        /// Why it does not fit.
        #[source]
        source: serde_json::Error,
    },
    /// There is no such job, or it is another tenant's.
    #[error("there is no job {0}")]
    NoJob(JobId),
    /// The address of a store cannot be understood.
    #[error("{url:?} is no address of a store: {why}")]
    Url {
        /// What was given, without its password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A worker cannot be started as it is set up.
    #[error("the worker cannot start: {0}")]
    Worker(String),
}

impl Error {
    /// May the same succeed if it is sent again?
    pub fn is_retryable(&self) -> bool {
        match self {
            Error::Busy => true,
            Error::Store(error) => error.info().retryable,
            Error::Refused(refusal) => refusal.info().retryable,
            _ => false,
        }
    }
}

impl From<SubmitError> for Error {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Refused(refusal) => Error::Refused(refusal),
            SubmitError::Store(error) => Error::Store(error),
            SubmitError::Full => Error::Busy,
            SubmitError::Closed => Error::Closed,
        }
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        Error::Store(Arc::new(error))
    }
}
