//! Where a database is, and how connections to it are made.
//!
//! In memory it is SQLite's `memdb`: a database with a name that every connection of the process can open,
//! and that is gone with the last of them. Nothing of it is ever on the disk, neither its journal nor what
//! is sorted. It has no write-ahead log, so whoever writes and whoever reads lock each other out: there a
//! connection that finds the database locked tries again at once and often, and its user notices nothing.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::open::failed;
use crate::{Error, sqlite::SqlResult};

/// How long a connection waits for someone else's lock, such as that of a shell with an open transaction.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// How soon a connection to memory tries again. Locks are held there for about as long.
const BUSY_PAUSE: Duration = Duration::from_micros(100);

/// Where a database is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In this file. The path has no links.
    File(PathBuf),
    /// In the memory of this process, under this name.
    Memory(PathBuf),
}

impl Place {
    /// In memory, under a name that no other store of this process has.
    pub(crate) fn new_in_memory() -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let number = STORES.fetch_add(1, Ordering::Relaxed);
        Self::Memory(format!("file:/windlass-{number}?vfs=memdb").into())
    }

    /// What SQLite calls it.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Memory(path) => path,
        }
    }

    /// What the promises of a store rest on: how the connection that writes must be set.
    pub(crate) fn settings(&self) -> [(&'static str, &'static str); 3] {
        let (journal, synchronous) = match self {
            Self::File(_) => ("wal", "2"),
            Self::Memory(_) => ("memory", "0"),
        };
        [("journal_mode", journal), ("synchronous", synchronous), ("foreign_keys", "1")]
    }

    /// A connection that reads and writes, to a database that is open already or is in memory.
    pub(crate) fn connect(&self) -> Result<Connection, Error> {
        self.connect_with(OpenFlags::SQLITE_OPEN_READ_WRITE, |_| Ok(()))
    }

    /// A connection that cannot write, to a database that is open already.
    pub(crate) fn connect_to_read(&self) -> Result<Connection, Error> {
        self.connect_with(OpenFlags::SQLITE_OPEN_READ_ONLY, |connection| {
            connection.set_prepared_statement_cache_capacity(64);
            // Without it SQLite prepares a statement anew whenever the number of a bound LIMIT changes.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            // The first read opens the write-ahead log, for which SQLite looks at the database by its name. Done later, that
            // would be an error of the disk if the file has been moved meanwhile, and say nothing of what happened.
            connection.query_row("PRAGMA schema_version", [], |_| Ok(()))
        })
    }

    fn connect_with(
        &self,
        flags: OpenFlags,
        set_up: impl FnOnce(&Connection) -> SqlResult<()>,
    ) -> Result<Connection, Error> {
        let connect = || -> SqlResult<Connection> {
            let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let connection = match self {
                Self::File(path) => {
                    let connection = Connection::open_with_flags(path, flags)?;
                    connection.busy_timeout(BUSY_TIMEOUT)?;
                    connection
                }
                Self::Memory(name) => {
                    let flags = flags | OpenFlags::SQLITE_OPEN_URI;
                    let mut connection = Connection::open_with_flags(name, flags)?;
                    connection.busy_handler(Some(pause))?;
                    connection.pragma_update(None, "temp_store", "memory")?;
                    connection
                }
            };
            set_up(&connection)?;
            Ok(connection)
        };
        connect().map_err(|error| failed(self.path(), error))
    }
}

/// Waits for a lock in memory, and says whether to try again. SQLite's own pauses grow to a tenth of a
/// second, and whoever sleeps so long rarely meets the lock free: among six users who wrote all the time one
/// waited for four seconds with them, and 0.08 at the most with these.
fn pause(times: i32) -> bool {
    thread::sleep(BUSY_PAUSE);
    BUSY_PAUSE * times.unsigned_abs() < BUSY_TIMEOUT
}
