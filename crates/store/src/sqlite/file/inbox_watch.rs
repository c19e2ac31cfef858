//! Notices what users have put into the inbox when nothing else is written.
//!
//! A thread asks the file a few times a second whether anybody has committed, which takes some
//! microseconds, and looks into the inbox only then. It is the safety net: a commit of the writer promotes
//! what it finds, and whoever cannot wait says so with an empty batch.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

use rusqlite::Connection;
use tokio::sync::oneshot::error::TryRecvError;

use super::place::Place;
use crate::{
    Error,
    sqlite::{
        SqlResult,
        write::writer_thread::{Answered, Promoter},
    },
};

/// How long a row of the inbox waits at the most before it is noticed.
const POLL: Duration = Duration::from_millis(100);

/// How soon it looks again after it has asked the writer to promote.
const POLL_BUSY: Duration = Duration::from_millis(5);

/// A thread that watches the inbox. Dropping it ends the thread.
pub(crate) struct InboxWatch {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl InboxWatch {
    pub(crate) fn start(place: &Place, promoter: Promoter) -> Result<Self, Error> {
        let connection = place.connect_to_read()?;
        let (stop, stopped) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("windlass-inbox".to_owned())
            .spawn(move || watch(&connection, &promoter, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for InboxWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks for one promotion at a time, and looks again until the inbox is empty. A promotion that fails
/// fails for a reason that the next write is told, too; it is asked for again.
fn watch(connection: &Connection, promoter: &Promoter, stopped: &mpsc::Receiver<()>) {
    let mut seen = None;
    let mut asked: Option<Answered> = None;
    loop {
        let is_open = |asked: &mut Answered| asked.try_recv().err() == Some(TryRecvError::Empty);
        if !asked.as_mut().is_some_and(is_open) {
            let waits = look(connection, &mut seen).unwrap_or(false);
            asked = if waits { promoter.ask() } else { None };
        }
        let pause = if asked.is_some() { POLL_BUSY } else { POLL };
        if stopped.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

/// Changes whenever another connection, of any process, has committed.
const VERSION: &str = "PRAGMA data_version";
const IS_USED: &str = "SELECT EXISTS (SELECT 1 FROM inbox)";

/// Does anything wait? It looks only if somebody has committed since it found nothing.
fn look(connection: &Connection, seen: &mut Option<i64>) -> SqlResult<bool> {
    let version: i64 = connection.prepare_cached(VERSION)?.query_row([], |row| row.get(0))?;
    if *seen == Some(version) {
        return Ok(false);
    }
    let is_used: bool = connection.prepare_cached(IS_USED)?.query_row([], |row| row.get(0))?;
    if !is_used {
        *seen = Some(version);
    }
    Ok(is_used)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_after_each_foreign_commit_and_until_nothing_waits() -> SqlResult<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.db");
        let user = Connection::open(&path)?;
        user.execute_batch(
            "PRAGMA journal_mode = wal; CREATE TABLE inbox (seq INTEGER PRIMARY KEY)",
        )?;
        let watching = Connection::open(&path)?;
        let mut seen = None;
        assert!(!look(&watching, &mut seen)? && seen.is_some());
        let first = seen;
        assert!(!look(&watching, &mut seen)?);
        user.execute_batch("BEGIN; INSERT INTO inbox VALUES (1)")?;
        assert!(!look(&watching, &mut seen)?, "it is not committed");
        user.execute_batch("COMMIT")?;
        // A promotion may fail, and then nothing is committed that would be noticed.
        assert!(look(&watching, &mut seen)? && look(&watching, &mut seen)?);
        user.execute_batch("DELETE FROM inbox")?;
        assert!(!look(&watching, &mut seen)? && seen != first);
        Ok(())
    }
}
