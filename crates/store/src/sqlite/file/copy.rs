//! Copies a database into a new file, whole and on the disk, while others may write to it.
//!
//! One read transaction is held for the whole copy. Without it SQLite would begin anew at every commit of
//! another process, and under a constant load never come to an end; with it the copy is the database of
//! one moment, and the writer is not held up. Its write-ahead log grows meanwhile.
//!
//! A copy is written under a name of its own (`<file>.part`) and looked at before it gets the name it is
//! for. A process that dies on the way leaves that part, which the next one writes over.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags,
    backup::{Backup, StepResult},
    ffi,
};

use super::{
    mark::Noted,
    open::{self, beside},
    place::BUSY_TIMEOUT,
    private,
};
use crate::{
    Error, migrate,
    sqlite::{SqlResult, classify, read::survey},
};

/// How many pages are copied before the caller is told how far it came.
const PAGES: i32 = 256;

/// How far a copy came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that are copied.
    pub bytes: u64,
    /// Bytes in all.
    pub of: u64,
}

/// A database that is read, and nothing else.
pub(crate) struct CopySource {
    connection: Connection,
    path: PathBuf,
}

impl CopySource {
    /// Opens a database of ours, whether or not somebody serves it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let path = &fs::canonicalize(path).map_err(|error| Error::open(path, error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let failed = |error| open::failed(path, error);
        let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        // From here on it is the database of this moment.
        connection.execute_batch("BEGIN").map_err(failed)?;
        let version = open::schema_version(path, &connection)?;
        if version == 0 {
            return Err(Error::open(path, "it is not a database of Windlass"));
        }
        migrate::missing(migrate::SQLITE, version)?;
        Ok(Self { connection, path: path.clone() })
    }

    /// Which store it is and how far it came.
    pub(crate) fn identity(&self) -> Result<Noted, Error> {
        let noted = open::read_identity(&self.connection);
        let noted = noted.map_err(|error| open::failed(&self.path, error))?;
        noted.ok_or_else(|| Error::open(&self.path, "it was never opened to the end"))
    }

    /// What somebody else has put into it.
    pub(crate) fn foreign(&self) -> Result<Vec<String>, Error> {
        survey::foreign(&self.connection).map_err(|error| open::failed(&self.path, error))
    }

    /// SQLite's own look at every page.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let check = self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0));
        let found: String = check.map_err(|error| open::failed(&self.path, error))?;
        if found == "ok" {
            return Ok(());
        }
        Err(Error::Damaged(format!("{}: {found}", self.path.display())))
    }

    /// Is it this file, whatever both are called?
    pub(crate) fn is(&self, path: &Path) -> bool {
        fs::canonicalize(path).is_ok_and(|path| path == self.path)
    }
}

/// A copy that has no name of its own yet. Dropping it removes it.
pub(crate) struct Part {
    path: PathBuf,
    is_kept: bool,
    _lock: File,
}

impl Part {
    /// An empty part beside the file it is for. Nobody else can write it at the same time.
    pub(crate) fn new(source: &CopySource, target: &Path) -> Result<Self, Error> {
        let path = beside(target, ".part");
        let failed = |error: io::Error| Error::open(&path, error);
        if source.is(&path) {
            let why = "it is what is to be copied, and would be written over: give it another name";
            return Err(Error::open(&path, why));
        }
        let mut options = private::options();
        let file = options.write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::open(&path, "another process is writing it"));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // Another process may have renamed or removed the file between the open and the lock; and a
        // symbolic link is not ours to follow.
        if !is_at(&file, &path).map_err(failed)? {
            return Err(Error::open(&path, "it is a link, or another process has just written it"));
        }
        private::claim(&file).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        let part = Self { path, is_kept: false, _lock: file };
        part.clear_beside();
        Ok(part)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies the source into it, and waits until that is on the disk.
    pub(crate) fn fill(
        &self,
        source: &CopySource,
        progress: &mut dyn FnMut(Copied),
    ) -> Result<(), Error> {
        self.copy(source, progress).map_err(|error| self.failed(error))?;
        self.sync()
    }

    fn copy(&self, source: &CopySource, progress: &mut dyn FnMut(Copied)) -> SqlResult<()> {
        let mut target = Connection::open(&self.path)?;
        // Nothing has to be undone in a file that has no name yet, and it is synced when it is whole.
        target.pragma_update(None, "journal_mode", "off")?;
        target.pragma_update(None, "synchronous", "off")?;
        let page = source.connection.pragma_query_value(None, "page_size", |row| row.get(0));
        let page: u64 = page?;
        copy_pages(&source.connection, &mut target, page, progress)?;
        // The copy says of itself that it has a write-ahead log, as the source does. It needs none.
        target.pragma_update(None, "journal_mode", "delete")
    }

    /// Changes something in the copy.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&Connection) -> SqlResult<()>,
    ) -> Result<(), Error> {
        let changed = Connection::open(&self.path).and_then(|connection| change(&connection));
        changed.map_err(|error| self.failed(error))?;
        self.sync()
    }

    /// Gives it the name it is for, in the place of a file of that name only if that `may_replace`. From
    /// then on it is there, also after a power cut.
    pub(crate) fn keep(mut self, target: &Path, may_replace: bool) -> Result<(), Error> {
        if may_replace {
            fs::rename(&self.path, target).map_err(|error| Error::open(target, error))?;
            self.is_kept = true;
            return sync_folder(target);
        }
        match fs::hard_link(&self.path, target) {
            Ok(()) => sync_folder(target),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(Error::Exists { path: target.display().to_string() })
            }
            // Where a file can have only one name.
            Err(_) => self.keep(target, true),
        }
    }

    /// Removes what SQLite left beside a part whose process died.
    fn clear_beside(&self) {
        for ending in ["-journal", "-wal", "-shm"] {
            let _ = fs::remove_file(beside(&self.path, ending));
        }
    }

    fn sync(&self) -> Result<(), Error> {
        let file = File::open(&self.path).and_then(|file| file.sync_all());
        file.map_err(|error| match error.kind() {
            io::ErrorKind::StorageFull => Error::DiskFull(error.into()),
            _ => Error::open(&self.path, error),
        })
    }

    /// What an error means while the part is written: the database that serves is not to blame.
    fn failed(&self, error: rusqlite::Error) -> Error {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseCorrupt) => classify(error),
            _ => Error::open(&self.path, error),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_file(&self.path);
            self.clear_beside();
        }
    }
}

fn copy_pages(
    source: &Connection,
    target: &mut Connection,
    page_bytes: u64,
    progress: &mut dyn FnMut(Copied),
) -> SqlResult<()> {
    let backup = Backup::new(source, target)?;
    loop {
        let step = backup.step(PAGES)?;
        let now = backup.progress();
        let bytes = |pages: i32| u64::try_from(pages).unwrap_or(0) * page_bytes;
        progress(Copied { bytes: bytes(now.pagecount - now.remaining), of: bytes(now.pagecount) });
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            // Nobody else has the target, and the source is being read already.
            _ => return Err(rusqlite::Error::SqliteFailure(busy(), None)),
        }
    }
}

fn busy() -> ffi::Error {
    ffi::Error::new(ffi::SQLITE_BUSY)
}

/// Is the open file the plain file of this name?
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let (opened, named) = (file.metadata()?, fs::symlink_metadata(path)?);
    Ok(named.is_file() && (opened.dev(), opened.ino()) == (named.dev(), named.ino()))
}

/// Is the open file the plain file of this name?
#[cfg(not(unix))]
fn is_at(_: &File, path: &Path) -> io::Result<bool> {
    Ok(fs::symlink_metadata(path)?.is_file())
}

/// Waits until the names in the folder of a file are on the disk.
pub(crate) fn sync_folder(file: &Path) -> Result<(), Error> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|error| Error::open(folder, error))
}
