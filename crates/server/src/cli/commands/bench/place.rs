//! Where the database of a benchmark stands: a temporary folder, the file that was named, or a schema of its
//! own in a PostgreSQL database.
//!
//! Never true: that something is written to, or deleted, that was there before.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;
use windlass::{Ids, clock};
use windlass_store::{
    Store,
    postgres::{self, Postgres},
    sqlite::{self, Sqlite},
};

use super::error::Error;

/// The database itself, and what SQLite and the store keep beside it.
const FILES: [&str; 5] = ["", "-wal", "-shm", "-lock", "-mark"];

pub(super) enum Place {
    Temporary,
    File(PathBuf),
    Server(Box<postgres::Options>),
}

impl Place {
    /// What a figure was measured on, in one word.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Place::Server(_) => "postgres",
            Place::Temporary | Place::File(_) => "sqlite",
        }
    }

    pub(super) fn parse(store: Option<&str>) -> Result<Self, Error> {
        let Some(store) = store else { return Ok(Place::Temporary) };
        match store.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Place::File(PathBuf::from(path))),
            _ if store.starts_with("postgres://") || store.starts_with("postgresql://") => {
                Ok(Place::Server(Box::new(postgres::Options::parse(store)?)))
            }
            _ => {
                let why = format!(
                    "{store:?} is no store that I know.\n\
                     Try --store sqlite:FILE or --store postgres://HOST/DATABASE."
                );
                Err(Error::Usage(why))
            }
        }
    }

    /// A file with anything in it belongs to somebody, whatever it holds.
    pub(super) fn refuse_what_is_there(&self) -> Result<(), Error> {
        let Place::File(path) = self else { return Ok(()) };
        for ending in ["", "-wal"] {
            let file = beside(path, ending);
            if fs::metadata(&file).is_ok_and(|found| !found.is_file() || found.len() > 0) {
                return Err(Error::Taken(file));
            }
        }
        Ok(())
    }

    /// The named file is that of the last run, which this process made.
    pub(super) fn remove_last_run(&self) -> Result<(), Error> {
        let Place::File(path) = self else { return Ok(()) };
        for file in FILES.map(|ending| beside(path, ending)) {
            match fs::remove_file(&file) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::Folder { path: file, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A place for one run. Its folder goes when it is dropped.
    pub(super) fn site(&self) -> Result<Site, Error> {
        // The system's folder for temporary files is often in memory, where durable means nothing. The
        // current one is on a disk.
        let parent = match self {
            Place::Temporary | Place::Server(_) => Path::new("."),
            Place::File(path) => match path.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            },
        };
        let folder = tempfile::Builder::new()
            .prefix(".windlass-bench-")
            .tempdir_in(parent)
            .map_err(|source| Error::Folder { path: parent.to_owned(), source })?;
        let database = match self {
            Place::Temporary => Database::File(folder.path().join("windlass.db")),
            Place::File(path) => Database::File(path.clone()),
            Place::Server(options) => {
                let mut options = options.clone();
                options.schema = format!("windlass_bench_{:08x}", Ids::system().random() >> 96);
                Database::Schema(options)
            }
        };
        Ok(Site { database, folder })
    }
}

/// The files of one run.
pub(super) struct Site {
    database: Database,
    folder: TempDir,
}

impl Site {
    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// Where the yardstick has its database: always temporary, on the same disk.
    pub(super) fn yardstick(&self) -> PathBuf {
        self.folder.path().join("yardstick.db")
    }
}

/// The database of one run.
pub(super) enum Database {
    File(PathBuf),
    /// A schema that goes when the run is over.
    Schema(Box<postgres::Options>),
}

impl Database {
    /// Opens the store, which is made if it is not there.
    pub(super) async fn open(&self) -> Result<Arc<dyn Store>, Error> {
        match self {
            Database::File(path) => {
                let (path, clock) = (path.clone(), clock::system());
                let options = sqlite::Options { path, clock, ticks: None, address: None };
                Ok(Arc::new(Sqlite::open(options)?))
            }
            Database::Schema(options) => Ok(Arc::new(Postgres::open((**options).clone()).await?)),
        }
    }

    /// What it takes on the disk, with its write-ahead log if that is its own.
    pub(super) async fn size_bytes(&self) -> Result<u64, Error> {
        match self {
            Database::File(path) => {
                let size = |ending| fs::metadata(beside(path, ending)).map_or(0, |it| it.len());
                Ok(size("") + size("-wal"))
            }
            Database::Schema(options) => Ok(postgres::size_bytes(options).await?),
        }
    }

    /// Removes what does not go by itself.
    pub(super) async fn remove(&self) -> Result<(), Error> {
        match self {
            Database::File(_) => Ok(()),
            Database::Schema(options) => Ok(postgres::remove(options).await?),
        }
    }
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(ending);
    PathBuf::from(name)
}
