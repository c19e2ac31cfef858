//! Are the files that are open still the files of these names, and is the database as long as it was?
//!
//! A file that is removed or replaced while it is open takes every write and gives none back: whoever opens
//! the name finds something else. One that was truncated has lost what it held. So the writer looks before it answers,
//! and stops instead.

use std::{
    fs::{self, Metadata},
    path::{Path, PathBuf},
};

use rusqlite::Connection;

use super::open::beside;
use crate::Error;

/// The files of a database that is open, and which they are.
pub(crate) struct FileIdentity {
    files: [(PathBuf, Option<FileId>); 2],
    /// How long the database was.
    len: u64,
}

/// A database has a header as long as this, once anything was written to it.
const HEADER_BYTES: u64 = 100;

impl FileIdentity {
    /// The database of this name, and its log.
    pub(crate) fn new(database: &Path) -> Self {
        let log = beside(database, "-wal");
        Self { files: [database.to_owned(), log].map(|path| (path, None)), len: 0 }
    }

    /// Refuses to go on if a name is gone or names another file than when it was first looked at, or if the database
    /// is shorter than it was and this connection to it does not know why.
    pub(crate) fn check(&mut self, connection: &Connection) -> Result<(), Error> {
        let mut len = None;
        for (path, known) in &mut self.files {
            let metadata = fs::metadata(&*path).ok();
            let found = metadata.as_ref().map(file_id);
            if found.is_none() || known.is_some_and(|known| Some(known) != found) {
                return Err(Error::Stopped(format!(
                    "{} was removed or replaced while it was in use. What was acknowledged is in files \
                     that have no name any more: restore a backup",
                    path.display()
                )));
            }
            *known = found;
            len = len.or(metadata.map(|metadata| metadata.len()));
        }
        let len = len.unwrap_or(0);
        if len < self.len && (len < HEADER_BYTES || !was_vacuumed(connection, self.len)) {
            return Err(Error::Stopped(format!(
                "{} was truncated while it was in use: it had {} bytes and has {len}. What was acknowledged is \
                 gone: restore a backup",
                self.files[0].0.display(),
                self.len
            )));
        }
        self.len = len;
        Ok(())
    }
}

/// Has the database itself become shorter than this? A user's `VACUUM` makes it so; nothing of ours does.
fn was_vacuumed(connection: &Connection, len: u64) -> bool {
    let read = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, u64>(0));
    match (read("page_count"), read("page_size")) {
        (Ok(pages), Ok(bytes)) => pages * bytes < len,
        _ => false,
    }
}

/// What tells two files apart, whatever they are called.
type FileId = (u64, u64);

#[cfg(unix)]
fn file_id(file: &Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt as _;
    (file.dev(), file.ino())
}

/// Elsewhere a file that is open cannot be removed.
#[cfg(not(unix))]
fn file_id(_: &Metadata) -> FileId {
    (0, 0)
}
