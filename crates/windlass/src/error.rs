//! Why the engine could not do what it was asked, told apart by what the caller does next.

use std::{fmt, sync::Arc};

use windlass_kernel::{JobId, Refusal};
use windlass_store as store;

use crate::SubmitError;

/// The engine could not do what it was asked.
///
/// A `main` that returns it prints it with its causes, as a person reads it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The rules say no. Nothing changed; the refusal says what to do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store could not answer. Its error says whether anything was written and what to do next.
    #[error(transparent)]
    Store(Arc<store::Error>),
    /// Too much is waiting. Nothing was written; send again later.
    #[error("too many writes are waiting")]
    Busy,
    /// The engine was closed. Nothing was written; open it again. If its store has stopped, the error is the store's.
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

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")?;
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            write!(f, ": {inner}")?;
            cause = inner.source();
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_returns_it_from_main_reads_what_happened_and_why() {
        let source = "it is a folder".into();
        let error = Error::from(store::Error::Open { path: "jobs.db".to_owned(), source });
        assert_eq!(format!("{error:?}"), "cannot open jobs.db: it is a folder");
        assert_eq!(error.to_string(), "cannot open jobs.db");
    }
}
