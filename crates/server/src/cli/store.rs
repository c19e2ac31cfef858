//! Which database a command is about, and what is said when it cannot be used.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use windlass_store::Error;

use super::exit;

#[derive(Args)]
pub(crate) struct StoreArg {
    /// The database: sqlite:FILE.
    #[arg(long, env = "WINDLASS_STORE", default_value = "sqlite:windlass.db")]
    pub(crate) store: String,
}

impl StoreArg {
    /// The file, whether it is there or not. What is no file of ours has been told.
    pub(crate) fn path(&self) -> Result<PathBuf, ExitCode> {
        self.store.strip_prefix("sqlite:").map(PathBuf::from).ok_or_else(|| {
            let store = &self.store;
            let message = format!("{store:?} is no store that I know.\nTry --store sqlite:FILE.");
            exit::fail(exit::USAGE, &message)
        })
    }

    /// The file, which has to be there.
    pub(crate) fn existing(&self) -> Result<PathBuf, ExitCode> {
        let path = self.path()?;
        if path.is_file() {
            return Ok(path);
        }
        let message = format!(
            "there is no database file {:?}.\nName another one with --store sqlite:FILE.",
            path.display().to_string()
        );
        Err(exit::fail(exit::NOT_FOUND, &message))
    }
}

/// Tells the error with its causes, and what to do.
pub(crate) fn fail(error: &Error) -> ExitCode {
    let code = match error {
        Error::Exists { .. } | Error::InUse { .. } => exit::CONFLICT,
        _ => exit::FAILED,
    };
    exit::fail(code, &format!("{}\n{}", exit::chain(error), error.info().remedy))
}
