//! Which database a command is about, and what is said when it cannot be used.

use std::path::PathBuf;

use clap::Args;
use windlass_store::{Error, postgres, without_password};

use super::{exit, trouble::Trouble};

/// The store that is used if none is named.
const STORE_DEFAULT: &str = "sqlite:windlass.db";

#[derive(Args, Clone)]
pub(crate) struct StoreArg {
    /// The database: sqlite:FILE or postgres://HOST/DATABASE.
    #[arg(long, env = "WINDLASS_STORE", default_value = STORE_DEFAULT)]
    #[arg(hide_env_values = true, help_heading = "Where")]
    pub(crate) store: String,
}

impl Default for StoreArg {
    fn default() -> Self {
        Self { store: STORE_DEFAULT.to_owned() }
    }
}

/// A database that a command is about.
pub(crate) enum StoreName {
    File(PathBuf),
    Server(Box<postgres::Options>),
}

impl StoreArg {
    /// What was named, which has to be there if it is a file.
    pub(crate) fn told(&self) -> Result<StoreName, Trouble> {
        let store = &self.store;
        if let Some(path) = store.strip_prefix("sqlite:").map(PathBuf::from) {
            if path.is_file() {
                return Ok(StoreName::File(path));
            }
            let what = format!("there is no database file {}", path.display());
            return Err(Trouble::not_found(what).then("Name another one with --store sqlite:FILE."));
        }
        if store.starts_with("postgres://") || store.starts_with("postgresql://") {
            let options = postgres::Options::parse(store).map_err(|why| Trouble::of_store(&why))?;
            return Ok(StoreName::Server(Box::new(options)));
        }
        let shown = without_password(store);
        Err(Trouble::usage(format!("{shown:?} is no store that I know"))
            .then("Try --store sqlite:FILE or --store postgres://HOST/DATABASE."))
    }

    /// The file, whether it is there or not, for a command that copies files.
    pub(crate) fn path(&self) -> Result<PathBuf, Trouble> {
        if let Some(path) = self.store.strip_prefix("sqlite:") {
            return Ok(PathBuf::from(path));
        }
        self.told()?;
        let what = "this copies SQLite files, and a PostgreSQL server has its own ways";
        Err(Trouble::usage(what)
            .then("A server that was restored is noticed, and no lease from before counts on it.")
            .then("Use the backups of the server, or pg_dump DATABASE > FILE"))
    }

    /// The file, which has to be there.
    pub(crate) fn existing(&self) -> Result<PathBuf, Trouble> {
        let path = self.path()?;
        self.told().map(|_| path)
    }
}

/// How a command ends that met this error.
pub(crate) fn exit_of(error: &Error) -> u8 {
    match error {
        Error::Exists { .. } | Error::InUse { .. } => exit::CONFLICT,
        Error::Unavailable(_) => exit::UNREACHABLE,
        _ => exit::FAILED,
    }
}
