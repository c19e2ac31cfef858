//! What went wrong on the way to PostgreSQL, told apart by what is known afterwards.

use std::{error::Error as _, io, time::Duration};

use deadpool_postgres::PoolError;
use tokio_postgres::error::{DbError, ErrorPosition, Severity, SqlState};

use crate::{Error, error::BoxError};

/// A call that failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The server or the way to it. What it says has all its causes in it, so it names none as its source:
    /// whoever prints the chain would print them twice.
    #[error("{}", told(.0))]
    Server(tokio_postgres::Error),
    /// No connection could be had.
    #[error("no connection could be had: {0}")]
    Pool(BoxError),
    /// No answer came in time.
    #[error("no answer came within {0:?}")]
    TimedOut(Duration),
    /// What was read cannot be right.
    #[error("{0}")]
    Damaged(String),
    /// The rules that the commit goes by were changed while it waited for them. Nothing was written.
    #[error("rules were changed meanwhile")]
    RulesChanged,
    /// Another commit made what this one was about to make, or more has to be locked than was known when locks were
    /// taken. Nothing was written.
    #[error("another commit was faster")]
    Overtaken,
    /// It has an answer already.
    #[error(transparent)]
    Known(Error),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Server(error)
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => Failure::Server(error),
            other => Failure::Pool(other.into()),
        }
    }
}

/// A row that was changed by someone since it was seen; raised by our own function `expect`.
const NOT_AS_EXPECTED: &str = "WL001";

impl Failure {
    pub(crate) fn damaged(why: impl Into<String>) -> Self {
        Failure::Damaged(why.into())
    }

    fn db(&self) -> Option<&DbError> {
        match self {
            Failure::Server(error) => error.as_db_error(),
            _ => None,
        }
    }

    /// Is the connection of no more use, and nobody knows what the server did last?
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Failure::Server(_) => self.db().is_none_or(|error| {
                let severity = error.parsed_severity();
                matches!(severity, Some(Severity::Fatal | Severity::Panic))
            }),
            Failure::TimedOut(_) => true,
            Failure::Pool(_) | Failure::Damaged(_) | Failure::Known(_) => false,
            Failure::RulesChanged | Failure::Overtaken => false,
        }
    }

    /// Is this key taken already?
    pub(crate) fn is_conflict_of(&self, constraint: &str) -> bool {
        self.db().is_some_and(|error| {
            *error.code() == SqlState::UNIQUE_VIOLATION && error.constraint() == Some(constraint)
        })
    }

    /// May the same go through if it is tried again, with what is stored?
    pub(crate) fn is_worth_a_try(&self) -> bool {
        let Some(error) = self.db() else {
            // A connection that was kept may have died in the meantime; a new one may live.
            return match self {
                Failure::Server(error) => error.is_closed() || error.source().is_some(),
                Failure::RulesChanged | Failure::Overtaken => true,
                _ => false,
            };
        };
        let code = error.code();
        code.code() == NOT_AS_EXPECTED
            || [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::UNIQUE_VIOLATION,
                SqlState::ADMIN_SHUTDOWN,
                SqlState::CRASH_SHUTDOWN,
                SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                SqlState::READ_ONLY_SQL_TRANSACTION,
            ]
            .contains(code)
            // A statement that was prepared before somebody changed a table.
            || *code == SqlState::FEATURE_NOT_SUPPORTED
    }

    /// Is the server not there, or does it take nobody in just now? It may be there in a moment, and nothing is wrong with
    /// what it was asked.
    pub(crate) fn is_away(&self) -> bool {
        if let Some(error) = self.db() {
            let code = error.code();
            return code.code().starts_with("08")
                || [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::TOO_MANY_CONNECTIONS,
                ]
                .contains(code);
        }
        match self {
            Failure::Server(error) => error.is_closed() || is_cut_off(error),
            Failure::TimedOut(_) | Failure::Pool(_) => true,
            Failure::Damaged(_) | Failure::Known(_) => false,
            Failure::RulesChanged | Failure::Overtaken => false,
        }
    }

    /// Did someone else have what had to be locked?
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.db().is_some_and(|error| {
            let code = error.code();
            [SqlState::LOCK_NOT_AVAILABLE, SqlState::T_R_DEADLOCK_DETECTED].contains(code)
        })
    }

    /// The log has no partition for a row.
    pub(crate) fn lacks_partition(&self) -> bool {
        self.db().is_some_and(|error| {
            *error.code() == SqlState::CHECK_VIOLATION && error.constraint().is_none()
        })
    }

    /// What it means to the caller. Nothing was written.
    pub(crate) fn into_error(self) -> Error {
        let Some(error) = self.db() else {
            return match self {
                Failure::Damaged(why) => Error::Damaged(why),
                Failure::Known(error) => error,
                other => Error::Unavailable(other.into()),
            };
        };
        let code = error.code().code().to_owned();
        match code.as_bytes() {
            b"53100" => Error::DiskFull(self.into()),
            b"XX001" | b"XX002" => Error::Damaged(self.to_string()),
            // A constraint, or a value that a column does not take.
            [b'2', b'3' | b'2', ..] => Error::Contradiction(self.into()),
            // A table or a column that is not there.
            [b'4', b'2', ..] if code != "42501" => Error::Damaged(self.to_string()),
            _ => Error::Unavailable(self.into()),
        }
    }

    pub(crate) fn into_source(self) -> BoxError {
        self.into()
    }
}

/// An error of the server with all that it said; others with their causes.
fn told(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let place = match error.position() {
            Some(ErrorPosition::Original(place)) => format!(" at {place}"),
            _ => String::new(),
        };
        let said = format!("{} {}{detail}{place}", error.code().code(), error.message());
        if *error.code() == SqlState::LOCK_NOT_AVAILABLE {
            return format!("another client holds a lock that was waited for: {said}");
        }
        return said;
    }
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    said
}

/// Was there nobody at the other end of the line, or did it break? Certificates and names are another matter.
fn is_cut_off(error: &tokio_postgres::Error) -> bool {
    let causes = std::iter::successors(error.source(), |cause| (*cause).source());
    let mut kinds =
        causes.filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.any(|kind| {
        matches!(
            kind,
            io::ErrorKind::ConnectionRefused
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::NotConnected
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::TimedOut
                | io::ErrorKind::NotFound
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
        )
    })
}
