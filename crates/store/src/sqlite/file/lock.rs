//! The owner's lock: a file is served by one handle of one process.
//!
//! It stands in a file of its own beside the database, `<database>-lock`, which says who the owner is and where it
//! answers. The system drops it when its process dies, however it dies. The file itself stays: deleting it would let two
//! processes lock two files of one name.
//!
//! Neither a hard link nor a lock file that was deleted gets past it: the database itself is locked too, by `flock`, which
//! SQLite's own record locks know nothing of.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Write as _},
    path::Path,
    process,
};

use super::{open::beside, private};
use crate::{Error, Owner};

/// A database that is ours until this is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    /// The database itself, whatever it is called. It is closed after SQLite has closed its own: a process that closes
    /// any handle of a file lets go of all its record locks there.
    database: Option<File>,
}

impl Lock {
    /// Takes the lock and writes down who has it.
    pub(crate) fn take(database: &Path, address: Option<&str>) -> Result<Self, Error> {
        let path = beside(database, "-lock");
        let failed = |error: io::Error| {
            let why = format!("its lock file {} cannot be used: {error}", path.display());
            Error::open(database, why)
        };
        let mut options = private::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::InUse { owner: read_owner(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        write_owner(&mut file, address).map_err(failed)?;
        Ok(Self { file, database: None })
    }

    /// Locks the database itself, which is there now. Whoever has it under another name, or had it when its lock file was
    /// removed, has not locked the same lock file and is found here.
    pub(crate) fn hold(&mut self, database: &Path) -> Result<(), Error> {
        let failed =
            |error: io::Error| Error::open(database, format!("it cannot be locked: {error}"));
        let file = OpenOptions::new().read(true).write(true).open(database).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {
                self.database = Some(file);
                Ok(())
            }
            Err(TryLockError::WouldBlock) => {
                // It stays open: this process may be the one that has it, with record locks that closing would drop.
                std::mem::forget(file);
                Err(Error::InUse { owner: Owner::default() })
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }
}

/// Who has the database, if somebody has. The lock is tried for a moment, and nothing is written.
pub(crate) fn owner(database: &Path) -> Option<Owner> {
    let mut file = File::open(beside(database, "-lock")).ok()?;
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            None
        }
        Err(_) => Some(read_owner(&mut file)),
    }
}

impl Drop for Lock {
    /// Closing the file would do, but for a process that this one is just starting: it has a copy of every
    /// handle until its program begins, and a copy keeps the lock.
    fn drop(&mut self) {
        let _ = self.database.as_ref().map(File::unlock);
        let _ = self.file.unlock();
    }
}

/// Two lines: the process, and its address if it has one.
fn write_owner(file: &mut File, address: Option<&str>) -> io::Result<()> {
    file.set_len(0)?;
    let address = address.unwrap_or_default().replace('\n', " ");
    file.write_all(format!("{}\n{address}\n", process::id()).as_bytes())
}

/// What the owner wrote, if it came to that.
fn read_owner(file: &mut File) -> Owner {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    let mut lines = text.lines();
    Owner {
        process: lines.next().and_then(|line| line.parse().ok()),
        address: lines.next().filter(|line| !line.is_empty()).map(str::to_owned),
    }
}
