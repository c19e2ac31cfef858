//! A transaction whose own statements are prepared once.
//!
//! A small commit is short enough for the parsing of `BEGIN` and `COMMIT` to show in a profile. Always true: what was
//! begun is committed, or rolled back when this is dropped.

use std::ops::Deref;

use rusqlite::Connection;

use crate::sqlite::SqlResult;

/// A transaction on this connection, which is in no other.
pub(crate) struct Begun<'c> {
    connection: &'c Connection,
}

const TO_READ: &str = "BEGIN";
const TO_WRITE: &str = "BEGIN IMMEDIATE";
const COMMIT: &str = "COMMIT";
const ROLLBACK: &str = "ROLLBACK";

impl<'c> Begun<'c> {
    /// One that sees the database as it is at its first look.
    pub(crate) fn to_read(connection: &'c Connection) -> SqlResult<Self> {
        connection.prepare_cached(TO_READ)?.execute([])?;
        Ok(Self { connection })
    }

    /// One that nobody else writes beside.
    pub(crate) fn to_write(connection: &'c Connection) -> SqlResult<Self> {
        connection.prepare_cached(TO_WRITE)?.execute([])?;
        Ok(Self { connection })
    }

    pub(crate) fn commit(self) -> SqlResult<()> {
        self.connection.prepare_cached(COMMIT)?.execute([])?;
        Ok(())
    }
}

impl Deref for Begun<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        // Some errors have rolled it back already.
        if !self.connection.is_autocommit() {
            let rollback = || self.connection.prepare_cached(ROLLBACK)?.execute([]);
            let _ = rollback();
        }
    }
}
