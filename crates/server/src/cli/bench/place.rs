//! Where the database of a benchmark stands: a temporary folder, or the file that was named.
//!
//! Never true: that something is written to, or deleted, that was there before.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use super::error::Error;

/// The database itself, and what SQLite and the store keep beside it.
const FILES: [&str; 5] = ["", "-wal", "-shm", "-lock", "-mark"];

pub(super) enum Place {
    Temporary,
    File(PathBuf),
}

impl Place {
    pub(super) fn parse(store: Option<&str>) -> Result<Self, Error> {
        let Some(store) = store else { return Ok(Place::Temporary) };
        match store.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Place::File(PathBuf::from(path))),
            _ if store.starts_with("postgres://") || store.starts_with("postgresql://") => {
                let why = "PostgreSQL is not there yet: only SQLite can be measured.\n\
                           Try --store sqlite:FILE.";
                Err(Error::Usage(why.to_owned()))
            }
            _ => {
                let why = format!("{store:?} is no store that I know.\nTry --store sqlite:FILE.");
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
            Place::Temporary => Path::new("."),
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
            Place::Temporary => folder.path().join("windlass.db"),
            Place::File(path) => path.clone(),
        };
        Ok(Site { database, folder })
    }
}

/// The files of one run.
pub(super) struct Site {
    database: PathBuf,
    folder: TempDir,
}

impl Site {
    pub(super) fn database(&self) -> &Path {
        &self.database
    }

    /// Where the yardstick has its database: always temporary, on the same disk.
    pub(super) fn yardstick(&self) -> PathBuf {
        self.folder.path().join("yardstick.db")
    }
}

/// What the database and its write-ahead log take on the disk.
pub(super) fn size_bytes(database: &Path) -> u64 {
    let size = |ending| fs::metadata(beside(database, ending)).map_or(0, |file| file.len());
    size("") + size("-wal")
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(ending);
    PathBuf::from(name)
}
