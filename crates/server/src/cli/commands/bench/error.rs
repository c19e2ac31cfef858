//! Why a benchmark has no result, told apart by what the person does next.

use std::{io, path::PathBuf};

use windlass::SubmitError;

use crate::cli::{
    exit,
    next::{self, About},
    store,
};

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    /// Type it differently.
    #[error("{0}")]
    Usage(String),
    /// Name another file.
    #[error(
        "{} is already there, and a benchmark only fills a database that it made itself.\n\
         Name a file that is not there yet, or leave out --store for one that is deleted at the end.",
        .0.display()
    )]
    Taken(PathBuf),
    /// Start it again, if you like.
    #[error("stopped before the end; what was temporary is gone")]
    Interrupted,
    /// Name a place that can be written to.
    #[error("cannot use {}; name another place with --store sqlite:FILE", path.display())]
    Folder { path: PathBuf, source: io::Error },
    /// The machine gives no threads.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Store(#[from] windlass_store::Error),
    /// A no-op job was not taken: what is measured is not what it should be.
    #[error("the store did not take a write")]
    Submit(#[from] SubmitError),
    /// The same, for the yardstick.
    #[error("a claim of {wanted} ready jobs got {got}")]
    Short { wanted: usize, got: usize },
    /// The same, for a worker.
    #[error("the worker did not work")]
    Worker(#[from] windlass::Error),
    /// The server did not serve.
    #[error("the server failed: {0}")]
    Server(String),
    #[error("the yardstick failed")]
    Yardstick(#[from] rusqlite::Error),
}

impl Error {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Error::Usage(_) => exit::USAGE,
            Error::Taken(_) => exit::CONFLICT,
            Error::Interrupted => exit::INTERRUPTED,
            Error::Store(error) => store::exit_of(error),
            Error::Folder { .. }
            | Error::Runtime(_)
            | Error::Submit(_)
            | Error::Short { .. }
            | Error::Worker(_)
            | Error::Server(_)
            | Error::Yardstick(_) => exit::FAILED,
        }
    }

    /// The error with its causes, and what to do.
    pub(super) fn told(&self) -> String {
        match self {
            Error::Store(error) => {
                let next = next::lines(error.code(), About::default());
                format!("{}\n{}", exit::chain(self), next.join("\n"))
            }
            _ => exit::chain(self),
        }
    }
}
