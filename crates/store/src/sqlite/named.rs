//! Are the files that are open still the files of these names?
//!
//! A file that is removed or replaced while it is open takes every write and gives none back: whoever opens
//! the name finds something else. So the writer looks before it answers, and stops instead.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::open::beside;
use crate::Error;

/// The files of a database that is open, and which they are.
pub(super) struct Named {
    files: [(PathBuf, Option<FileId>); 2],
}

impl Named {
    /// The database of this name, and its log.
    pub(super) fn new(database: &Path) -> Self {
        let log = beside(database, "-wal");
        Self { files: [database.to_owned(), log].map(|path| (path, None)) }
    }

    /// Refuses to go on if a name is gone or names another file than when it was first looked at.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        for (path, known) in &mut self.files {
            let found = file_id(path).ok();
            if found.is_none() || known.is_some_and(|known| Some(known) != found) {
                return Err(Error::Stopped(format!(
                    "{} was removed or replaced while it was in use. What was acknowledged is in files \
                     that have no name any more: restore a backup",
                    path.display()
                )));
            }
            *known = found;
        }
        Ok(())
    }
}

/// What tells two files apart, whatever they are called.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(path: &Path) -> io::Result<FileId> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Elsewhere a file that is open cannot be removed.
#[cfg(not(unix))]
fn file_id(path: &Path) -> io::Result<FileId> {
    fs::metadata(path).map(|_| (0, 0))
}
