//! What can go wrong with the store itself, told apart by what the caller does next.

use std::{fmt, io, path::Path};

use windlass_kernel::{Class, refusal::CodeInfo};

/// The cause of an error, whatever it is.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The store could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was written. Safe to send again.
    #[error("the database is unavailable")]
    Unavailable(#[source] BoxError),
    /// The commit's answer was lost. Send again under the same identity.
    #[error("the commit's outcome is unknown")]
    Ambiguous(#[source] BoxError),
    /// The disk is full. Nothing was written; make room and send again.
    #[error("the disk is full")]
    DiskFull(#[source] BoxError),
    /// The database refused what the rules allowed. Nothing was written. Sending the same again will
    /// not help, but what else was in the batch can be sent without it.
    #[error("the database contradicts the rules")]
    Contradiction(#[source] BoxError),
    /// Another process serves this file. Talk to it, or stop it.
    #[error("the database is in use by {owner}")]
    InUse {
        /// Who has it, as far as it said so.
        owner: Owner,
    },
    /// The database was made by a newer version. Use that version.
    #[error(
        "the database is newer than this program: it has migration {found}, we know {known}; \
         start the version that made it, or a later one"
    )]
    Newer {
        /// The newest migration in the database.
        found: u32,
        /// The newest migration we know.
        known: u32,
    },
    /// What is stored cannot be right. Stop, and restore a backup.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The store has stopped for good, after an error that it must not outlive. Whether the last commit
    /// is there is not known. Start again, and send again under the same identity.
    #[error("the store has stopped: {0}")]
    Stopped(String),
    /// Retention has taken some of the events that are asked for. Read the jobs anew, and follow the feed
    /// from the number that is named.
    #[error("the events asked for are no longer kept; all are there from number {from} on")]
    FeedGone {
        /// From here on, no event is missing.
        from: u64,
    },
    /// There is a file where one is to be written. Choose another name, or say that it may be replaced.
    #[error("{path} is there already")]
    Exists {
        /// The file.
        path: String,
    },
    /// The file cannot be opened.
    #[error("cannot open {path}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: BoxError,
    },
    /// A server that was asked over HTTP does not tell us this. The message says why.
    #[error("the server does not tell us: {0}")]
    Denied(String),
}

macro_rules! codes {
    ($($variant:ident, $code:literal, $class:ident, $retryable:literal, $meaning:literal, $remedy:literal;)*) => {
        impl Error {
            /// Every code, in the order of the variants.
            pub const CODES: &'static [CodeInfo] = &[$(CodeInfo {
                code: $code,
                class: Class::$class,
                retryable: $retryable,
                meaning: $meaning,
                remedy: $remedy,
            }),*];

            /// The code that programs see.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Error::$variant { .. } => $code),*
                }
            }
        }
    };
}

codes! {
    Unavailable, "UNAVAILABLE", Transient, true,
        "The database could not be reached, or something else held its lock for too long. Nothing was written.",
        "Send the same again.";
    Ambiguous, "AMBIGUOUS", Transient, true,
        "The answer to a commit was lost: it may or may not have been written.",
        "Send the same again under the same identity, then read the job: an enqueue, a claim, a start, a settle, a requeue and a re-run are answered from the record.";
    DiskFull, "DISK_FULL", Transient, true,
        "There is no room on the disk. Nothing was written; what is stored can still be read.",
        "Make room, then send the same again. The store goes on by itself.";
    Contradiction, "STORE_CONTRADICTION", Permanent, false,
        "A constraint of the database refused what the rules allowed: a defect of Windlass, or a row that was changed by hand. Nothing was written.",
        "Report it with the message. The same again will not help.";
    InUse, "STORE_IN_USE", BusinessRule, true,
        "Another process serves this file, and a file has one owner at a time.",
        "Talk to the process that is named, or stop it and start again.";
    Newer, "STORE_NEWER", Permanent, false,
        "The database was made by a newer version of Windlass.",
        "Start the newer version. An older one must not guess what new rows mean.";
    Damaged, "STORE_DAMAGED", Permanent, false,
        "What is stored cannot be right, or something that was acknowledged is missing.",
        "Stop, keep the files, and restore a backup. The message says what is wrong.";
    Stopped, "STORE_STOPPED", Transient, false,
        "The disk failed, or the tables of the store were replaced under it, so the store stopped: it acknowledges nothing that it cannot vouch for.",
        "Look at what the message names, then start Windlass again and send what was not acknowledged again.";
    FeedGone, "FEED_GONE", Permanent, false,
        "Whoever reads the feed was away for longer than events are kept: some of those it has not seen are gone.",
        "Read the jobs as they stand now, then follow the feed from the number that the message names.";
    Exists, "FILE_EXISTS", BusinessRule, false,
        "A backup or a restored database would be written where a file is already. Nothing was changed.",
        "Name another file, or add --force to replace the one that is there.";
    Open, "STORE_CANNOT_OPEN", Permanent, false,
        "The database file cannot be opened.",
        "Name another one, or put a backup in the place of a file: the message says what is wrong with it.";
    Denied, "DENIED", SecuritySensitive, false,
        "A server was asked for something that it does not tell the caller: the token is missing or its role may not see it, or only the server itself knows it.",
        "The message says what is missing. Use a token of a role that may, or ask on the server.";
}

impl Error {
    /// What the code means and what to do next.
    pub fn info(&self) -> &'static CodeInfo {
        let code = self.code();
        Self::CODES.iter().find(|info| info.code == code).expect("each code is in the table")
    }

    /// The file at `path` cannot be opened, because of this.
    pub(crate) fn open(path: &Path, why: impl Into<BoxError>) -> Self {
        Error::Open { path: path.display().to_string(), source: why.into() }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Unavailable(error.into())
    }
}

/// The process that serves a file, as it wrote itself down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its process id.
    pub process: Option<u32>,
    /// Where it answers.
    pub address: Option<String>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "process {process}")?,
            None => f.write_str("another process")?,
        }
        match &self.address {
            Some(address) => write!(f, ", which answers at {address}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_stands_once_and_is_explained() {
        for (place, info) in Error::CODES.iter().enumerate() {
            assert!(!Error::CODES[..place].iter().any(|other| other.code == info.code));
            assert!(info.meaning.ends_with('.') && info.remedy.ends_with('.'), "{}", info.code);
        }
    }

    #[test]
    fn an_owner_is_named_as_far_as_it_is_known() {
        let address = Some("http://127.0.0.1:8080".to_owned());
        for (owner, expected) in [
            (Owner::default(), "another process"),
            (Owner { process: Some(7), address: None }, "process 7"),
            (
                Owner { process: Some(7), address },
                "process 7, which answers at http://127.0.0.1:8080",
            ),
        ] {
            let error = Error::InUse { owner };
            assert_eq!(error.to_string(), format!("the database is in use by {expected}"));
            assert_eq!(error.info().code, "STORE_IN_USE");
        }
    }
}
