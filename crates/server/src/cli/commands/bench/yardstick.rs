//! The yardstick: what the database can do at all, on the same disk, in the same process.
//!
//! A bare loop of prepared statements does the least that a durable queue does: a row for a new job; one
//! update when it is claimed and one when it is settled, each commit with its row of events. It has the
//! store's settings and a table of the same shape, and nothing else: no rules, no checks, no callers.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, params};

use super::{error::Error, noop::PAYLOAD, options::Plan, progress::Progress};

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// New rows, so many in one commit.
    Insert { per_commit: u64 },
    /// Two updates of each row.
    Drain,
}

/// How many rows have a commit of their own. More say nothing new, and take minutes on a slow disk.
const SINGLE_ROWS_MAX: u64 = 5_000;

/// How many rows are put in at once where that is not timed.
const PREPARING: u64 = 1_000;

/// How many rows the drain takes at once.
const DRAINING: usize = 500;

/// Rows a second.
pub(super) fn run(
    kind: Kind,
    plan: &Plan,
    database: &Path,
    progress: &Progress,
) -> Result<f64, Error> {
    let mut yard = Yard { connection: open(database)?, progress, last: 0 };
    progress.begin("preparing the yardstick", plan.history);
    yard.insert(plan.history, PREPARING, false)?;
    let (rows, took) = match kind {
        Kind::Insert { per_commit } => {
            let rows = if per_commit == 1 { plan.jobs.min(SINGLE_ROWS_MAX) } else { plan.jobs };
            progress.begin("measuring the yardstick", rows);
            (rows, yard.insert(rows, per_commit, true)?)
        }
        Kind::Drain => {
            progress.begin("preparing the yardstick", plan.backlog + plan.jobs);
            yard.insert(plan.backlog + plan.jobs, PREPARING, true)?;
            progress.begin("measuring the yardstick", plan.jobs);
            (plan.jobs, yard.drain(plan.jobs)?)
        }
    };
    Ok(rows as f64 / took.as_secs_f64())
}

/// 24 columns, about 270 bytes a row when it is new and 320 when it has ended, as a job has them, with an
/// index for each thing that a queue must find: a job, its key, what is ready, what is leased.
const SCHEMA: &str = "
    CREATE TABLE jobs (
        id BLOB PRIMARY KEY, tenant TEXT NOT NULL, queue TEXT NOT NULL, kind TEXT NOT NULL,
        state TEXT NOT NULL, ready_rank INTEGER, priority INTEGER NOT NULL, version INTEGER NOT NULL,
        attempt INTEGER NOT NULL, retry_count INTEGER NOT NULL, max_retries INTEGER NOT NULL,
        epoch INTEGER NOT NULL, claim_id BLOB, created_at INTEGER NOT NULL, due_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL, started_at INTEGER, finished_at INTEGER, lease TEXT,
        key TEXT NOT NULL, payload TEXT NOT NULL, digest BLOB NOT NULL, chain BLOB NOT NULL,
        log_ids BLOB NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX jobs_key ON jobs (tenant, key);
    CREATE INDEX jobs_ready ON jobs (queue, ready_rank) WHERE ready_rank IS NOT NULL;
    CREATE INDEX jobs_leased ON jobs (lease) WHERE lease IS NOT NULL;
    CREATE TABLE log (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, events TEXT NOT NULL) STRICT;";

/// With the settings of the store's own writer.
fn open(database: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

struct Yard<'a> {
    connection: Connection,
    progress: &'a Progress,
    /// The number of the last row.
    last: u64,
}

const INSERT: &str = "
    INSERT INTO jobs VALUES (?1, 'default', 'default', 'noop', ?2, ?3, 0, 1, 1, 0, 3, 0, NULL, ?4, ?4, ?4,
        NULL, NULL, NULL, ?5, ?6, ?7, ?7, ?8)";

const LOG: &str = "INSERT INTO log (at, events) VALUES (?1, ?2)";

/// What is ready, in order. Served by the index `jobs_ready` alone.
const READY: &str = "
    SELECT rowid FROM jobs WHERE queue = 'default' AND ready_rank IS NOT NULL
    ORDER BY ready_rank LIMIT ?1";

const CLAIM: &str = "
    UPDATE jobs SET state = 'running', ready_rank = NULL, version = 3, epoch = 1, claim_id = ?2,
        started_at = ?3, updated_at = ?3, lease = 'worker:bench-1', chain = ?4, log_ids = ?5
    WHERE rowid = ?1";

const SETTLE: &str = "
    UPDATE jobs SET state = 'succeeded', version = 4, finished_at = ?2, updated_at = ?2, lease = NULL,
        chain = ?3, log_ids = ?4
    WHERE rowid = ?1";

/// Any time of our years, in microseconds: it takes as many bytes as the real one.
const NOW: i64 = 1_800_000_000_000_000;

/// Events have the size of the real ones, and what they say does not matter.
const CLAIMED: &str = r#"["01jv3q8m5e7x9a2b4c6d8f0g1h",2,"worker_claim","queued","dispatched",1,0,1,0,"worker:bench-1",null,{"type":"claimed","epoch":1,"claim_id":"claim_01jv3q8m5e7x9a2b4c6d8f0g1h","worker":"bench-1"}],["01jv3q8m5e7x9a2b4c6d8f0g1h",3,"started","dispatched","running",1,0,1,0,"worker:bench-1",null,null],"#;
const SETTLED: &str = r#"["01jv3q8m5e7x9a2b4c6d8f0g1h",4,"worker_success","running","succeeded",1,0,1,0,"worker:bench-1",null,null],"#;

impl Yard<'_> {
    /// Puts in rows, so many in one commit, and says how long it took.
    fn insert(&mut self, rows: u64, per_commit: u64, ready: bool) -> Result<Duration, Error> {
        let start = Instant::now();
        let end = self.last + rows;
        let state = if ready { "queued" } else { "succeeded" };
        while self.last < end {
            let first = self.last + 1;
            self.last = (self.last + per_commit).min(end);
            let transaction = self.connection.transaction()?;
            let mut insert = transaction.prepare_cached(INSERT)?;
            for number in first..=self.last {
                let id = u128::from(number) << 64;
                let (rank, key) = (ready.then_some(number), format!("job_{number:026}"));
                let (id, hash, log_ids) = (id.to_be_bytes(), [7u8; 32], [7u8; 8]);
                insert.execute(params![id, state, rank, NOW, key, PAYLOAD, hash, log_ids])?;
            }
            drop(insert);
            transaction.commit()?;
            self.progress.add(self.last - first + 1)?;
        }
        Ok(start.elapsed())
    }

    /// Takes rows from the front to their end, and says how long it took.
    fn drain(&mut self, rows: u64) -> Result<Duration, Error> {
        let (claimed, settled) = (CLAIMED.repeat(DRAINING), SETTLED.repeat(DRAINING));
        let start = Instant::now();
        let mut left = rows;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(DRAINING).min(DRAINING);
            let taken = self.claim(count, &claimed[..CLAIMED.len() * count])?;
            self.settle(&taken, &settled[..SETTLED.len() * count])?;
            left -= taken.len() as u64;
            self.progress.add(taken.len() as u64)?;
        }
        Ok(start.elapsed())
    }

    fn claim(&mut self, count: usize, events: &str) -> Result<Vec<i64>, Error> {
        let transaction = self.connection.transaction()?;
        let mut ready = transaction.prepare_cached(READY)?;
        let taken = ready.query_map([count], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
        let mut claim = transaction.prepare_cached(CLAIM)?;
        for row in &taken {
            claim.execute(params![row, [7u8; 16], NOW, [8u8; 32], [8u8; 16]])?;
        }
        transaction.prepare_cached(LOG)?.execute(params![NOW, events])?;
        drop((ready, claim));
        transaction.commit()?;
        if taken.len() < count {
            return Err(Error::Short { wanted: count, got: taken.len() });
        }
        Ok(taken)
    }

    fn settle(&mut self, taken: &[i64], events: &str) -> Result<(), Error> {
        let transaction = self.connection.transaction()?;
        let mut settle = transaction.prepare_cached(SETTLE)?;
        for row in taken {
            settle.execute(params![row, NOW, [9u8; 32], [9u8; 24]])?;
        }
        transaction.prepare_cached(LOG)?.execute(params![NOW, events])?;
        drop(settle);
        Ok(transaction.commit()?)
    }
}
