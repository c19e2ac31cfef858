//! Retention: forgets finished jobs in small steps, and then what the log says of them.
//!
//! A pass looks at jobs from the newest to the oldest, then at the log from the oldest row on (`thin`).
//! Each step is one short transaction of the writer, so other commits run in between. Which job may go is
//! the kernel's to say. Where a pass stands is remembered by the writer alone: after a restart the next
//! one begins anew, and nothing is lost but time.
//!
//! A job goes whole, and leaves a narrow row in `pruned` for as long as the log speaks of it: so a job
//! that is gone for any other reason is noticed, and its id is not given out again meanwhile. What the
//! inbox told of enqueues that made no job goes by its age, with its lines.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{
    Job, JobId, Timestamp,
    retention::{Retention, Ties, may_go},
    time::as_ms,
};

use super::thin;
use crate::{
    read::Pruned,
    sqlite::{
        SqlResult,
        claim::names::Stored,
        row::{
            column::{self, time_or_none},
            granted,
            job::{Loaded, job_columns, unleased_job_of},
            letter, rule, task,
        },
    },
};

/// How many rows of jobs a step looks at.
const ROWS_MAX: usize = 2_000;

/// Where a pass stands.
#[derive(Debug)]
pub(crate) struct Sweep {
    phase: Phase,
    /// The last log row that speaks of a job of this pass, or of a result that may go. A first pass looks
    /// at all: what one before a restart left undone is not known.
    log_until: i64,
}

#[derive(Debug)]
enum Phase {
    Jobs {
        /// All from this one on were looked at; none at the beginning.
        below: Option<i64>,
        /// How many finished jobs of each tenant were met that stay.
        kept: HashMap<String, u64>,
    },
    Log {
        /// All up to this one were looked at.
        after: i64,
    },
}

impl Default for Sweep {
    fn default() -> Self {
        Self { phase: Phase::start(), log_until: i64::MAX }
    }
}

impl Phase {
    fn start() -> Self {
        Phase::Jobs { below: None, kept: HashMap::new() }
    }
}

/// Makes one step that looks closely at `max` jobs at the most. It gives back what it did and where the
/// pass stands after it.
pub(crate) fn prune(
    connection: &Connection,
    sweep: Sweep,
    retention: &Retention,
    max: usize,
    now: Timestamp,
) -> SqlResult<(Pruned, Sweep)> {
    rule::sweep(connection, now)?;
    let forgot = granted::forget(connection, granted::FORGET_MAX, now)?;
    let (mut pruned, sweep) = make_step(connection, sweep, retention, max, now)?;
    pruned.more |= forgot == granted::FORGET_MAX;
    Ok((pruned, sweep))
}

fn make_step(
    connection: &Connection,
    sweep: Sweep,
    retention: &Retention,
    max: usize,
    now: Timestamp,
) -> SqlResult<(Pruned, Sweep)> {
    match sweep.phase {
        Phase::Jobs { below, kept } => {
            let below = below.map_or_else(|| start(connection, retention, now), Ok)?;
            let mut pruner =
                Pruner { connection, retention, now, kept, log_until: sweep.log_until };
            let (jobs, below) = pruner.take(below, max)?;
            let (kept, log_until) = (pruner.kept, pruner.log_until);
            let next = match below {
                Some(below) => {
                    Some(Sweep { phase: Phase::Jobs { below: Some(below), kept }, log_until })
                }
                None => log_to_walk(connection, retention, log_until, now)?,
            };
            let more = next.is_some();
            let next = next.unwrap_or(Sweep { phase: Phase::start(), log_until: 0 });
            Ok((Pruned { jobs, log_rows: 0, more }, next))
        }
        Phase::Log { after } => {
            let thinned =
                thin::thin(connection, after, sweep.log_until, retention.newest_result(now))?;
            let next = match thinned.after {
                Some(after) => Sweep { phase: Phase::Log { after }, log_until: sweep.log_until },
                None => Sweep { phase: Phase::start(), log_until: 0 },
            };
            let (log_rows, more) = (thinned.deleted, thinned.after.is_some());
            Ok((Pruned { jobs: 0, log_rows, more }, next))
        }
    }
}

pub(crate) const JOB_FROM: &str =
    "SELECT seq, created_at FROM jobs WHERE seq >= ?1 ORDER BY seq LIMIT 1";
const LAST_SEQ: &str = "SELECT coalesce(max(seq), 0) FROM jobs";

/// Where a pass begins. If only the age counts, it leaves out the jobs that were made too late to be old
/// enough: they stand together at the end, because time never goes back.
fn start(connection: &Connection, retention: &Retention, now: Timestamp) -> SqlResult<i64> {
    let last: i64 = connection.query_row(LAST_SEQ, [], |row| row.get(0))?;
    if retention.keep_at_most.is_some() {
        return Ok(last + 1);
    }
    halve(connection, JOB_FROM, last, retention.newest_end(false, now))
}

/// What is to be done in the log after the jobs, if there is anything.
fn log_to_walk(
    connection: &Connection,
    retention: &Retention,
    log_until: i64,
    now: Timestamp,
) -> SqlResult<Option<Sweep>> {
    let walk = |after, log_until| Some(Sweep { phase: Phase::Log { after }, log_until });
    Ok(match old_results(connection, retention, now)? {
        Some((first, last)) if log_until == 0 => walk(first - 1, last),
        Some((_, last)) => walk(0, log_until.max(last)),
        None if log_until == 0 => None,
        None => walk(0, log_until),
    })
}

const RESULT_FROM: &str =
    "SELECT event, at FROM inbox_results WHERE event >= ?1 ORDER BY event LIMIT 1";
const NOTE_FROM: &str = "SELECT event, at FROM notes WHERE event >= ?1 ORDER BY event LIMIT 1";
/// The last row of the log stays, and so do the results that it tells.
const RESULTS: &str = "
    SELECT (SELECT min(event) FROM inbox_results),
        (SELECT max(event) FROM inbox_results WHERE event < (SELECT max(id) FROM log))";
const NOTES: &str = "
    SELECT (SELECT min(event) FROM notes),
        (SELECT max(event) FROM notes WHERE event < (SELECT max(id) FROM log))";

/// Where the log tells the first and the last result of the inbox, or note, that may go.
fn old_results(
    connection: &Connection,
    retention: &Retention,
    now: Timestamp,
) -> SqlResult<Option<(i64, i64)>> {
    let newest = retention.newest_result(now);
    let mut found: Option<(i64, i64)> = None;
    for (ends, from) in [(RESULTS, RESULT_FROM), (NOTES, NOTE_FROM)] {
        let ends: (Option<i64>, Option<i64>) =
            connection.query_row(ends, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (Some(first), Some(last)) = ends else { continue };
        let young = halve(connection, from, last, newest)?;
        if first < young {
            // A row of the log is known by its first event, which may be an earlier one.
            let first = connection.query_row(LOG_ROW_OF, [first], |row| row.get(0))?;
            let (low, high) = found.unwrap_or((first, young - 1));
            found = Some((low.min(first), high.max(young - 1)));
        }
    }
    Ok(found)
}

const LOG_ROW_OF: &str = "SELECT max(id) FROM log WHERE id <= ?1";

/// The first number up to `last + 1` from which on all rows are later than `newest`. The statement finds
/// a row at or after a number, with its time; times never go back from one to the next.
pub(crate) fn halve(
    connection: &Connection,
    from: &str,
    last: i64,
    newest: Timestamp,
) -> SqlResult<i64> {
    let mut from = connection.prepare_cached(from)?;
    let (mut low, mut high) = (0, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found: Option<(i64, i64)> = from.query_row([middle], row).optional()?;
        match found {
            Some((number, at)) if at <= newest.as_micros() => low = number + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// One step through the jobs.
struct Pruner<'a> {
    connection: &'a Connection,
    retention: &'a Retention,
    now: Timestamp,
    kept: HashMap<String, u64>,
    log_until: i64,
}

/// Newest first, with the time of the end. What is at its end does not change.
const JOBS_BELOW: &str = "
    SELECT seq, tenant, iif(state IN ('succeeded', 'partial', 'failed', 'cancelled'), updated_at, NULL)
    FROM jobs WHERE seq < ?1 ORDER BY seq DESC LIMIT ?2";

impl Pruner<'_> {
    /// Deletes what may go, and says how many went and where the next step goes on, unless it is done.
    fn take(&mut self, below: i64, max: usize) -> SqlResult<(u64, Option<i64>)> {
        let mut statement = self.connection.prepare_cached(JOBS_BELOW)?;
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, time_or_none(row, 2)?));
        let rows = statement.query_map(params![below, ROWS_MAX], row)?;
        let rows: Vec<(i64, String, Option<Timestamp>)> = rows.collect::<SqlResult<_>>()?;
        let (seen, last) = (rows.len(), rows.last().map(|row| row.0));
        let (mut jobs, mut tried) = (0, 0);
        for (seq, tenant, finished_at) in rows {
            if tried >= max.max(1) {
                return Ok((jobs, Some(seq + 1)));
            }
            let Some(finished_at) = finished_at else { continue };
            let kept = self.kept.get(&tenant).copied().unwrap_or(0);
            let is_over = self.retention.keep_at_most.is_some_and(|most| kept >= most);
            let is_old = finished_at <= self.retention.newest_end(is_over, self.now);
            tried += usize::from(is_old);
            if is_old && self.forget(seq, is_over)? {
                jobs += 1;
            } else {
                self.kept.insert(tenant, kept + 1);
            }
        }
        Ok((jobs, last.filter(|_| seen == ROWS_MAX)))
    }

    /// Deletes a job with all that is its own, if it may go.
    fn forget(&mut self, seq: i64, is_over: bool) -> SqlResult<bool> {
        let connection = self.connection;
        let Loaded { job, place } = connection
            .prepare_cached(JOB_AT)?
            .query_row([seq], |row| unleased_job_of(row, &Stored(connection)))?;
        let letter = match job.dlq_id {
            Some(id) => letter::load_letter(connection, id)?,
            None => None,
        };
        let parent = match job.spec.parent {
            Some(id) => job_named(connection, id)?,
            None => None,
        };
        let ties = Ties {
            letter: letter.as_ref(),
            parent: parent.as_ref(),
            has_live_child: has_live_child(connection, job.id)?,
            task_is_active: task_is_active(connection, &job)?,
        };
        let Ok(least) = may_go(&job, &ties, is_over, self.retention, self.now) else {
            return Ok(false);
        };
        let inline = place.history.log_ids().map(u64::cast_signed);
        let older: i64 = connection.prepare_cached(OLDER)?.query_row([seq], |row| row.get(0))?;
        let rows = older + i64::try_from(inline.len()).expect("a few");
        self.log_until = self.log_until.max(inline.max().unwrap_or(0));
        let id = job.id.as_u128().to_be_bytes();
        let (at, least) = (self.now.as_micros(), as_ms(least));
        connection.prepare_cached(NOTE)?.execute(params![id, at, least, job.version, rows])?;
        for statement in DELETE {
            connection.prepare_cached(statement)?.execute([seq])?;
        }
        connection.prepare_cached(DELETE_LETTER)?.execute([id])?;
        if let Some(parent) = job.spec.parent {
            let row = params![parent.as_u128().to_be_bytes(), seq];
            connection.prepare_cached(DELETE_CHILD)?.execute(row)?;
        }
        for tag in &job.spec.tags {
            let row = params![job.spec.tenant.as_str(), tag.as_str(), seq];
            connection.prepare_cached(DELETE_TAG)?.execute(row)?;
        }
        Ok(true)
    }
}

const JOB_AT: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE seq = ?1");
const JOB_NAMED: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");
const OLDER: &str = "SELECT count(*) FROM job_log WHERE seq = ?1";
const NOTE: &str =
    "INSERT INTO pruned (id, at, least_ms, version, rows) VALUES (?1, ?2, ?3, ?4, ?5)";
const DELETE: [&str; 8] = [
    "DELETE FROM jobs WHERE seq = ?1",
    "DELETE FROM payloads WHERE seq = ?1",
    "DELETE FROM outputs WHERE seq = ?1",
    "DELETE FROM progress WHERE seq = ?1",
    "DELETE FROM job_log WHERE seq = ?1",
    "DELETE FROM steps WHERE seq = ?1",
    "DELETE FROM signals WHERE seq = ?1",
    "DELETE FROM effects WHERE seq = ?1",
];
/// What people said about it goes with it.
const DELETE_LETTER: &str = "DELETE FROM dlq_items WHERE job_id = ?1";
const DELETE_TAG: &str = "DELETE FROM job_tags WHERE tenant = ?1 AND tag = ?2 AND seq = ?3";
const DELETE_CHILD: &str = "DELETE FROM children WHERE parent = ?1 AND seq = ?2";

fn job_named(connection: &Connection, id: JobId) -> SqlResult<Option<Job>> {
    let mut by_id = connection.prepare_cached(JOB_NAMED)?;
    let job = |row: &Row<'_>| unleased_job_of(row, &Stored(connection)).map(|loaded| loaded.job);
    by_id.query_row([id.as_u128().to_be_bytes()], job).optional()
}

/// Served by the table `children`. It looks at so many children and no more: a parent that has more
/// left counts as one with a live child, until those that ended were forgotten.
const LIVE_CHILD: &str = "
    SELECT count(*) = 100
        OR coalesce(sum(state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')), 0) > 0
    FROM (SELECT state FROM children CROSS JOIN jobs USING (seq) WHERE parent = ?1 LIMIT 100)";

fn has_live_child(connection: &Connection, id: JobId) -> SqlResult<bool> {
    connection.prepare_cached(LIVE_CHILD)?.query_row([id.as_u128().to_be_bytes()], |row| row.get(0))
}

fn task_is_active(connection: &Connection, job: &Job) -> SqlResult<bool> {
    let task = (job.spec.tenant.clone(), job.spec.task_id.clone());
    let task = task::load_task(connection, &task, &Stored(connection))?;
    Ok(task.is_some_and(|task| task.active.is_some()))
}

const LAST_PRUNED: &str = "SELECT id FROM pruned ORDER BY id DESC LIMIT 1";
const IS_PRUNED: &str = "SELECT count(*) FROM pruned WHERE id = ?1";

/// The greatest id that the log still knows and the jobs do not. New ids are greater than old ones, so
/// the usual enqueue need not look further.
pub(crate) fn load_last_pruned(connection: &Connection) -> SqlResult<Option<JobId>> {
    let mut last = connection.prepare_cached(LAST_PRUNED)?;
    last.query_row([], |row| column::u128_of(row, 0).map(JobId::from_u128)).optional()
}

/// Was a job of this id forgotten, while the log still speaks of it?
pub(crate) fn is_pruned(connection: &Connection, id: JobId) -> SqlResult<bool> {
    connection.prepare_cached(IS_PRUNED)?.query_row([id.as_u128().to_be_bytes()], |row| row.get(0))
}
