//! A crash on purpose: this process ends after a chosen statement, as if it had been killed there.
//!
//! For tests of what a crash leaves behind. It exists with the feature `faults` alone; without it nothing is counted,
//! and nothing of it is in the program.
//!
//! What counts is every statement of a commit, `BEGIN` and `COMMIT` too, and on SQLite all else that the saver runs.
//! What lies between two statements lies after the first of them, so a crash after each is a crash everywhere.

use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{
    Connection,
    trace::{TraceEvent, TraceEventCodes},
};
use rustix::process::{Signal, getpid, kill_process};

/// How many statements are left. Zero: as many as there are.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Ends this process after so many statements from now on, whichever store of the process they belong to.
///
/// Nothing is unwound, flushed or told: the operating system kills the process.
pub fn after_statements(count: u64) {
    LEFT.store(count, Ordering::SeqCst);
}

/// A statement has run.
pub(crate) fn statement_ran() {
    let one_less = |left: u64| left.checked_sub(1);
    if LEFT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less) == Ok(1) {
        kill_process(getpid(), Signal::KILL).expect("a process may kill itself");
        // Should the signal take a moment, this thread runs nothing more.
        loop {
            std::thread::park();
        }
    }
}

/// The same connection to SQLite, whose statements count from now on.
pub(crate) fn counted(mut connection: Connection) -> Connection {
    let ran: fn(TraceEvent<'_>) = |_| statement_ran();
    // If they cannot be counted no process dies, which a test would notice.
    let _ = connection.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(ran));
    connection
}

#[cfg(feature = "postgres")]
tokio::task_local! {
    /// Set while a commit to PostgreSQL is on its way. Statements of reads that run meanwhile are
    /// not counted.
    static COMMITS: ();
}

/// The same commit to PostgreSQL, whose statements count.
#[cfg(feature = "postgres")]
pub(crate) async fn counting<F: Future>(commit: F) -> F::Output {
    COMMITS.scope((), commit).await
}

/// Is this part of a commit whose statements count, and is the process to die after one?
#[cfg(feature = "postgres")]
pub(crate) fn is_near() -> bool {
    LEFT.load(Ordering::SeqCst) > 0 && COMMITS.try_with(|()| ()).is_ok()
}
