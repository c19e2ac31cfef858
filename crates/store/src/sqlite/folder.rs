//! The folder: the thread that folds the write-ahead log into the database, while commits go on.
//!
//! What a commit wrote is durable in the log, so nobody waits for this. But a log begins anew only when all of
//! it is in the database at the moment when a commit begins, and behind a folder that works beside commits
//! there is always a little more. So once the log is long, the saver folds that little itself.
//!
//! SQLite would fold by itself, and would not say when it fails: a disk that can no longer be synced would go
//! unnoticed while the log grows.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use rusqlite::{Connection, config::DbConfig};

use super::{SqlResult, classify, place::Place, saver::ends};
use crate::Error;

/// How many pages the log has, and how many of them are in the database already.
const LENGTH: &str = "PRAGMA wal_checkpoint(NOOP)";
/// Folds what no reader still needs, and waits for nobody.
const FOLD: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// How many pages may wait before they are folded.
const WAITING_MAX: i64 = 1_000;
/// How many pages the log may have before the saver sees to it that it begins anew.
const LOG_MAX: i64 = 4_000;
/// How many pages the log may have before commits wait for the folder.
const LOG_LONGEST: i64 = 16_000;

/// The way to the folder's thread. Dropping it waits until what it folds is folded.
pub(super) struct Folder {
    wake: Option<SyncSender<()>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Was it told to fold, and has not done so yet?
    is_busy: AtomicBool,
    /// Held while it folds.
    folding: Mutex<()>,
    /// Why the log could not be folded, if that ends the store.
    broken: Mutex<Option<Error>>,
}

/// What the saver does about the log after a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Todo {
    Nothing,
    /// The folder folds it.
    Wake,
    /// The saver waits for the folder, and folds the rest.
    Finish,
}

fn todo(pages: i64, folded: i64, is_busy: bool) -> Todo {
    let waiting = pages - folded;
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

impl Folder {
    /// A folder for the database at this place. None, if it is in memory: there is no log.
    pub(super) fn start(place: &Place) -> Result<Option<Self>, Error> {
        if let Place::Memory(_) = place {
            return Ok(None);
        }
        let connection = place.connect()?;
        set(&connection).map_err(classify)?;
        let shared = Arc::<Shared>::default();
        let (wake, woken) = sync_channel(1);
        let told = shared.clone();
        let thread = thread::Builder::new().name("windlass-folder".to_owned());
        let thread = thread.spawn(move || run(&connection, &woken, &told))?;
        Ok(Some(Self { wake: Some(wake), shared, thread: Some(thread) }))
    }

    /// Sees to a log that has grown long, after a commit of this connection. `gate` is held by whoever else of
    /// this store looks at the database: what somebody looks at cannot be folded to its end.
    ///
    /// An error ends the store. A disk that is full is no reason to end: the log stays as it is, and the next
    /// commit tries again.
    pub(super) fn tend(&self, connection: &Connection, gate: &Mutex<()>) -> Result<(), Error> {
        if let Some(error) = lock(&self.shared.broken).take() {
            return Err(error);
        }
        let is_busy = self.shared.is_busy.load(Ordering::Acquire);
        let tend = || -> SqlResult<()> {
            let (pages, folded) = ask(connection, LENGTH)?;
            match todo(pages, folded, is_busy) {
                Todo::Nothing => {}
                Todo::Wake => self.wake(),
                Todo::Finish => {
                    let _folder_rests = lock(&self.shared.folding);
                    let _nobody_looks = lock(gate);
                    ask(connection, FOLD)?;
                }
            }
            Ok(())
        };
        fatal(tend())
    }

    fn wake(&self) {
        self.shared.is_busy.store(true, Ordering::Release);
        // If it has ended, the log grows until the saver folds all of it.
        if let Some(wake) = &self.wake {
            let _ = wake.try_send(());
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the folder's thread does.
fn run(connection: &Connection, woken: &Receiver<()>, shared: &Shared) {
    while woken.recv().is_ok() {
        let folded = {
            let _folding = lock(&shared.folding);
            ask(connection, FOLD).map(drop)
        };
        if let Err(error) = fatal(folded) {
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
    // The log is folded at the end by the one that writes, or not at all.
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
    fn a_log_is_folded_beside_commits_and_begins_anew_before_it_is_long() {
        for (pages, folded, is_busy, expected) in [
            (0, 0, false, Todo::Nothing),
            (999, 0, false, Todo::Nothing),
            (1_000, 0, false, Todo::Wake),
            (1_000, 0, true, Todo::Nothing),
            (1_400, 1_000, false, Todo::Nothing),
            (2_000, 1_000, false, Todo::Wake),
            (4_000, 4_000, false, Todo::Nothing),
            (4_200, 3_900, true, Todo::Nothing),
            (4_200, 3_900, false, Todo::Finish),
            // A reader held it up: the folder first, then the rest.
            (9_000, 1_000, false, Todo::Wake),
            (16_000, 1_000, true, Todo::Finish),
            (16_000, 1_000, false, Todo::Finish),
            (16_000, 16_000, false, Todo::Nothing),
        ] {
            assert_eq!(todo(pages, folded, is_busy), expected, "{pages} {folded} {is_busy}");
        }
    }
}
