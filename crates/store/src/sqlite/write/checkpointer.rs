//! The checkpointer: the thread that copies the write-ahead log into the database file,
//! while commits go on.
//!
//! What a commit wrote is durable in the WAL, so no commit waits for a checkpoint. But SQLite
//! restarts the WAL from its beginning only if all of it is in the database when a commit begins,
//! and commits that run beside the checkpointer always add a little more. So once the WAL is long,
//! the saver checkpoints the last pages itself, between two commits.
//!
//! SQLite's own automatic checkpoint does not report its errors: a disk that can no longer be
//! synced would go unnoticed while the log grows.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use rusqlite::{Connection, config::DbConfig};

use super::saver::ends;
use crate::{
    Error,
    sqlite::{SqlResult, classify, file::place::Place},
};

/// How many pages the log has, and how many of them are in the database already.
const LENGTH: &str = "PRAGMA wal_checkpoint(NOOP)";
/// A passive checkpoint: copies the pages that no reader's snapshot still needs, and waits for
/// nobody.
const CHECKPOINT: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// From so many pages on that are not in the database yet, the checkpointer is woken.
const WAITING_MAX: i64 = 1_000;
/// From so many pages of WAL on, the saver finishes the checkpoint itself, so that the WAL
/// restarts.
const LOG_MAX: i64 = 4_000;
/// From so many pages of WAL on, commits wait for the checkpointer: back-pressure that bounds the
/// file.
const LOG_LONGEST: i64 = 16_000;

/// The way to the checkpointer's thread. Dropping it waits for a checkpoint that has begun.
pub(crate) struct Checkpointer {
    wake: Option<SyncSender<()>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Was a checkpoint asked for that has not ended yet?
    is_busy: AtomicBool,
    /// Held during a checkpoint.
    checkpoint: Mutex<()>,
    /// Why a checkpoint failed, if that ends the store.
    broken: Mutex<Option<Error>>,
}

/// What the saver does about the log after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Todo {
    Nothing,
    /// The checkpointer copies it.
    Wake,
    /// The saver waits for the checkpointer, and copies the rest.
    Finish,
}

fn todo(pages: i64, copied: i64, is_busy: bool) -> Todo {
    let waiting = pages - copied;
    if waiting == 0 {
        Todo::Nothing
    } else if pages >= LOG_LONGEST || (!is_busy && pages >= LOG_MAX && waiting < WAITING_MAX) {
        Todo::Finish
    } else if !is_busy && waiting >= WAITING_MAX {
        Todo::Wake
    } else {
        Todo::Nothing
    }
}

impl Checkpointer {
    /// A checkpointer for the database at this place. None, if it is in memory: there is no log.
    pub(crate) fn start(place: &Place) -> Result<Option<Self>, Error> {
        if let Place::Memory(_) = place {
            return Ok(None);
        }
        let connection = place.connect()?;
        set(&connection).map_err(classify)?;
        let shared = Arc::<Shared>::default();
        let (wake, woken) = sync_channel(1);
        let told = shared.clone();
        let thread = thread::Builder::new().name("windlass-checkpointer".to_owned());
        let thread = thread.spawn(move || run(&connection, &woken, &told))?;
        Ok(Some(Self { wake: Some(wake), shared, thread: Some(thread) }))
    }

    /// Sees to a log that has grown long, after a commit of this connection. `gate` is held by whoever else of
    /// this store looks at the database: what somebody looks at cannot be copied to its end.
    ///
    /// An error ends the store. A disk that is full is no reason to end: the log stays as it is, and the next
    /// commit tries again.
    pub(crate) fn tend(&self, connection: &Connection, gate: &Mutex<()>) -> Result<(), Error> {
        if let Some(error) = lock(&self.shared.broken).take() {
            return Err(error);
        }
        let is_busy = self.shared.is_busy.load(Ordering::Acquire);
        let tend = || -> SqlResult<()> {
            let (pages, copied) = ask(connection, LENGTH)?;
            match todo(pages, copied, is_busy) {
                Todo::Nothing => {}
                Todo::Wake => self.wake(),
                Todo::Finish => {
                    let _checkpointer_rests = lock(&self.shared.checkpoint);
                    let _nobody_looks = lock(gate);
                    ask(connection, CHECKPOINT)?;
                }
            }
            Ok(())
        };
        fatal(tend())
    }

    fn wake(&self) {
        self.shared.is_busy.store(true, Ordering::Release);
        // If it has ended, the log grows until the saver copies all of it.
        if let Some(wake) = &self.wake {
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the checkpointer's thread does.
fn run(connection: &Connection, woken: &Receiver<()>, shared: &Shared) {
    while woken.recv().is_ok() {
        let copied = {
            let _checkpoint = lock(&shared.checkpoint);
            ask(connection, CHECKPOINT).map(drop)
        };
        if let Err(error) = fatal(copied) {
            *lock(&shared.broken) = Some(error);
        }
        shared.is_busy.store(false, Ordering::Release);
    }
}

fn set(connection: &Connection) -> SqlResult<()> {
    // As the connection that writes is set: where a plain fsync leaves the data in the drive's cache.
    connection.pragma_update(None, "synchronous", 2)?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    // The connection that writes makes the last checkpoint, or nobody does.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(())
}

/// The pages of the log, and how many of them are in the database.
fn ask(connection: &Connection, sql: &str) -> SqlResult<(i64, i64)> {
    connection.prepare_cached(sql)?.query_row([], |row| Ok((row.get(1)?, row.get(2)?)))
}

/// Only what ends the store.
fn fatal(done: SqlResult<()>) -> Result<(), Error> {
    done.map_err(classify).or_else(|error| if ends(&error) { Err(error) } else { Ok(()) })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_copied_beside_commits_and_begins_anew_before_it_is_long() {
        for (pages, copied, is_busy, expected) in [
            (0, 0, false, Todo::Nothing),
            (999, 0, false, Todo::Nothing),
            (1_000, 0, false, Todo::Wake),
            (1_000, 0, true, Todo::Nothing),
            (1_400, 1_000, false, Todo::Nothing),
            (2_000, 1_000, false, Todo::Wake),
            (4_000, 4_000, false, Todo::Nothing),
            (4_200, 3_900, true, Todo::Nothing),
            (4_200, 3_900, false, Todo::Finish),
            // A reader held it up: the checkpointer first, then the rest.
            (9_000, 1_000, false, Todo::Wake),
            (16_000, 1_000, true, Todo::Finish),
            (16_000, 1_000, false, Todo::Finish),
            (16_000, 16_000, false, Todo::Nothing),
        ] {
            assert_eq!(todo(pages, copied, is_busy), expected, "{pages} {copied} {is_busy}");
        }
    }
}
