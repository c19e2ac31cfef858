//! Reads a whole file for the history checker, in one snapshot, while others may write.
//!
//! Lines of the log come in the order of commits and are needed by job. A table of this connection alone
//! sorts them, on the disk where it has to, so memory does not grow with the history.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, Rows, backup::Backup, params};
use windlass_kernel::JobId;

use super::rows::{
    JOBS, JobReader, LETTERS, PrunedReader, RESULTS, group_of, inbox_pair_of, key_of, letter_of,
    line_of, run_of,
};
use crate::{
    Error,
    check::{
        ActKind, Invariant, KeyCheck, LogCheck, Report, RunCheck, check_gone, check_inbox,
        check_job, check_left, check_letter, read_note,
        values::{Line, LogRow, Places, Run},
    },
    sqlite::{
        SqlResult, Sqlite, classify,
        file::place::Place,
        read::feed::read_feed_from,
        row::{column::u128_of, task::TaskName},
    },
};

/// Checks a whole file: every job, every event, every dead letter. Nothing in the file is changed.
pub fn check(path: &Path) -> Result<Report, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    check_opened(Connection::open_with_flags(path, flags))
}

impl Sqlite {
    /// Checks the whole store: every job, every event, every dead letter. It is open, and others may write
    /// meanwhile; nothing in it is changed.
    pub fn check(&self) -> Result<Report, Error> {
        match &self.place {
            Place::File(path) => check(path),
            // A database in memory has no WAL: a reader would block the writer, so a copy is read.
            Place::Memory(_) => check_opened(copy_of(self.place.connect_to_read()?)),
        }
    }
}

/// Has any answer. To get it a connection takes the lock that a reader needs.
const READ: &str = "SELECT count(*) FROM sqlite_schema";

/// A copy in memory that nobody else has.
fn copy_of(mut connection: Connection) -> SqlResult<Connection> {
    let mut copy = Connection::open_in_memory()?;
    copy.pragma_update(None, "temp_store", "memory")?;
    // The lock is waited for here, with an end. To copy all pages then takes one step, and cannot fail for it.
    let snapshot = connection.transaction()?;
    snapshot.query_row(READ, [], |_| Ok(()))?;
    Backup::new(&snapshot, &mut copy)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    Ok(copy)
}

fn check_opened(opened: SqlResult<Connection>) -> Result<Report, Error> {
    let mut report = Report::default();
    let checked = opened.and_then(|mut connection| {
        // What the constraints of the schema say is checked here as well, and in better words.
        connection.pragma_update(None, "ignore_check_constraints", true)?;
        connection.set_prepared_statement_cache_capacity(64);
        let snapshot = connection.transaction()?;
        check_integrity(&snapshot, &mut report)?;
        check_rules(&snapshot, &mut report)
    });
    match checked {
        Ok(()) => Ok(report),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            report.add(Invariant::Integrity, format!("the rest could not be read: {error}"));
            Ok(report)
        }
        Err(error) => Err(classify(error)),
    }
}

pub(super) fn check_rules(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    check_owners(connection, report)?;
    let places = load_places(connection)?;
    connection.execute_batch(SORTING)?;
    sort_log(connection, report)?;
    check_jobs(connection, &places, report)?;
    check_pruned(connection, report)?;
    check_runs(connection, report)?;
    check_keys(connection, report)?;
    check_letters(connection, report)?;
    check_results(connection, report)?;
    check_notes(connection, report)?;
    check_acts(connection, report)?;
    check_waiting(connection, report)?;
    check_set_aside(connection, report)
}

fn check_integrity(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let found: String = row.get(0)?;
        if found != "ok" {
            report.add(Invariant::Integrity, found);
        }
    }
    Ok(())
}

/// Rows that belong to nothing.
const WITHOUT_OWNER: &[(&str, &str)] = &[
    ("payloads", "SELECT count(*) FROM payloads WHERE seq NOT IN (SELECT seq FROM jobs)"),
    (
        "children",
        "SELECT count(*) FROM children
         WHERE seq NOT IN (SELECT seq FROM jobs WHERE options ->> 'parent' IS NOT NULL)",
    ),
    ("outputs", "SELECT count(*) FROM outputs WHERE seq NOT IN (SELECT seq FROM jobs)"),
    ("log pointers", "SELECT count(*) FROM job_log WHERE seq NOT IN (SELECT seq FROM jobs)"),
    ("approvals", "SELECT count(*) FROM approvals WHERE dlq_id NOT IN (SELECT id FROM dlq_items)"),
];

/// Came with the third schema. A file can be checked that nobody has opened since.
const PROGRESS_WITHOUT_OWNER: (&str, &str) = (
    "reports of progress",
    "SELECT count(*) FROM progress WHERE seq NOT IN (SELECT seq FROM jobs)",
);
const HAS_PROGRESS: &str =
    "SELECT count(*) > 0 FROM main.sqlite_schema WHERE type = 'table' AND name = 'progress'";

/// Came with the tenth schema.
const LEDGER_WITHOUT_OWNER: &[(&str, &str)] = &[
    ("steps", "SELECT count(*) FROM steps WHERE seq NOT IN (SELECT seq FROM jobs)"),
    ("signals", "SELECT count(*) FROM signals WHERE seq NOT IN (SELECT seq FROM jobs)"),
    ("late effects", "SELECT count(*) FROM effects WHERE seq NOT IN (SELECT seq FROM jobs)"),
];
const HAS_LEDGER: &str =
    "SELECT count(*) > 0 FROM main.sqlite_schema WHERE type = 'table' AND name = 'steps'";

fn check_owners(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let has = |sql| connection.query_row(sql, [], |row| row.get::<_, bool>(0));
    let progress = has(HAS_PROGRESS)?.then_some(&PROGRESS_WITHOUT_OWNER);
    let ledger = if has(HAS_LEDGER)? { LEDGER_WITHOUT_OWNER } else { &[] };
    for (what, sql) in WITHOUT_OWNER.iter().chain(progress).chain(ledger) {
        let count: u64 = connection.query_row(sql, [], |row| row.get(0))?;
        if count > 0 {
            report.add(Invariant::Owner, format!("{count} {what} belong to nothing"));
        }
    }
    Ok(())
}

const GROUPS: &str = "SELECT id, queue, tenant, kind, isolated FROM job_groups";
const SESSIONS: &str = "SELECT id, worker FROM sessions";

fn load_places(connection: &Connection) -> SqlResult<Places> {
    let mut groups = connection.prepare(GROUPS)?;
    let mut sessions = connection.prepare(SESSIONS)?;
    Ok(Places {
        groups: groups.query_map([], group_of)?.collect::<SqlResult<_>>()?,
        sessions: sessions
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<SqlResult<_>>()?,
    })
}

/// Tables of this connection alone.
const SORTING: &str = "
    CREATE TEMP TABLE lines (job BLOB, log_id INTEGER, tenant TEXT, at INTEGER, line TEXT);
    CREATE TEMP TABLE runs (job BLOB, tenant TEXT, task, first INTEGER, last INTEGER, ended INTEGER);
    CREATE TEMP TABLE told (event INTEGER, log_id INTEGER, tenant TEXT, at INTEGER, line TEXT);
    CREATE INDEX temp.told_event ON told (event);
    CREATE TEMP TABLE noted (event INTEGER, tenant TEXT, about TEXT, name TEXT, at INTEGER);
    CREATE TEMP TABLE acted (event INTEGER PRIMARY KEY, tenant TEXT, is_sure INTEGER);";

const LOG: &str = "SELECT id, tenant, at, count, events FROM log ORDER BY id";
const SORT_TOLD: &str =
    "INSERT INTO temp.told (event, log_id, tenant, at, line) VALUES (?1, ?2, ?3, ?4, ?5)";
const SORT_LINE: &str =
    "INSERT INTO temp.lines (job, log_id, tenant, at, line) VALUES (?1, ?2, ?3, ?4, ?5)";

const SORT_NOTE: &str =
    "INSERT INTO temp.noted (event, tenant, about, name, at) VALUES (?1, ?2, ?3, ?4, ?5)";

const SORT_ACT: &str =
    "INSERT OR IGNORE INTO temp.acted (event, tenant, is_sure) VALUES (?1, ?2, ?3)";

const MANY_WRITERS: &str = "SELECT count(*) FROM meta WHERE name = 'many_writers'";

/// Checks the log in its order, and puts its lines aside for their jobs and for the inbox.
fn sort_log(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let many_writers = connection.query_row(MANY_WRITERS, [], |row| row.get(0))?;
    let whole_from = readable(read_feed_from(connection), "where the feed begins", report)?;
    let mut log = LogCheck::new(whole_from.unwrap_or(1), many_writers);
    let mut statement = connection.prepare(LOG)?;
    let mut sort = connection.prepare(SORT_LINE)?;
    let mut sort_told = connection.prepare(SORT_TOLD)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let at = crate::sqlite::row::column::time_of(row, 2)?;
        let events = row.get_ref(4)?.as_str()?;
        let Some(id) = readable(row.get(0), "a row of the log", report)? else { continue };
        let log_row = LogRow { id, at, count: row.get(3)?, events };
        let tenant = row.get_ref(1)?.as_str()?;
        let spoken = log.check(&log_row, report);
        for (job, line) in spoken.of_jobs {
            let job = job.as_u128().to_be_bytes();
            sort.execute(params![job, log_row.id, tenant, at.as_micros(), line])?;
        }
        for (event, line) in spoken.of_inbox {
            sort_told.execute(params![event, log_row.id, tenant, at.as_micros(), line])?;
        }
        for (event, told) in spoken.acts {
            let row = params![event, tenant, told == ActKind::Act];
            connection.prepare_cached(SORT_ACT)?.execute(row)?;
        }
        for (event, line) in spoken.notes {
            if let Some(told) = read_note(event, line, report) {
                let row = params![event, tenant, told.about, told.name, at.as_micros()];
                connection.prepare_cached(SORT_NOTE)?.execute(row)?;
            }
        }
    }
    log.finish(report);
    Ok(())
}

/// In the order of their writing within each job, which is the order of the log.
const LINES: &str = "SELECT job, log_id, tenant, at, line FROM temp.lines ORDER BY job, rowid";
const SORT_RUN: &str = "
    INSERT INTO temp.runs (job, tenant, task, first, last, ended) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// Checks each job with its lines: both come by id.
fn check_jobs(connection: &Connection, places: &Places, report: &mut Report) -> SqlResult<()> {
    let mut statement = connection.prepare(LINES)?;
    let mut lines = Lines::new(statement.query([])?)?;
    let mut reader = JobReader::new(connection)?;
    let mut pruned = PrunedReader::new(connection)?;
    let mut sort = connection.prepare(SORT_RUN)?;
    let mut statement = connection.prepare(JOBS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let id = JobId::from_u128(u128_of(row, 1)?);
        lines.skip_to(Some(id), &mut pruned, report)?;
        let lines = lines.take(id)?;
        let Some(job) = readable(reader.job_row(row), &format!("{id}"), report)? else { continue };
        if let Some(run) = check_job(&job, &lines, places, report) {
            let Run { job, tenant, first, last, ended, .. } = run;
            let (job, tenant) = (job.as_u128().to_be_bytes(), tenant.as_str());
            let task = &job_task(&run.task);
            sort.execute(params![job, tenant, task, first, last, ended])?;
        }
    }
    lines.skip_to(None, &mut pruned, report)
}

fn job_task(task: &str) -> TaskName<'_> {
    task.parse().map_or(TaskName::Given(task), TaskName::Own)
}

/// Lines by job, one ahead.
struct Lines<'a> {
    rows: Rows<'a>,
    next: Option<(JobId, Line)>,
}

impl<'a> Lines<'a> {
    fn new(rows: Rows<'a>) -> SqlResult<Self> {
        let mut lines = Self { rows, next: None };
        lines.step()?;
        Ok(lines)
    }

    fn step(&mut self) -> SqlResult<Option<(JobId, Line)>> {
        let next = self.rows.next()?.map(line_of).transpose()?;
        Ok(std::mem::replace(&mut self.next, next))
    }

    /// All lines of the job that is next.
    fn take(&mut self, id: JobId) -> SqlResult<Vec<Line>> {
        let mut taken = Vec::new();
        while self.next.as_ref().is_some_and(|(job, _)| *job == id) {
            taken.extend(self.step()?.map(|(_, line)| line));
        }
        Ok(taken)
    }

    /// Passes the lines before this job, or all: they speak of jobs that are not there.
    fn skip_to(
        &mut self,
        id: Option<JobId>,
        pruned: &mut PrunedReader<'_>,
        report: &mut Report,
    ) -> SqlResult<()> {
        while let Some((stray, _)) = self.next.as_ref().filter(|next| Some(next.0) != id) {
            if id.is_some_and(|id| *stray > id) {
                break;
            }
            let stray = *stray;
            let lines = self.take(stray)?;
            let row = readable(pruned.row(stray), &format!("that {stray} was forgotten"), report)?;
            if let Some(row) = row {
                check_gone(stray, row.as_ref(), &lines, report);
            }
        }
        Ok(())
    }
}

const PRUNED_AND_THERE: &str = "SELECT id FROM pruned WHERE id IN (SELECT id FROM jobs)";
const PRUNED_WITHOUT_LINES: &str =
    "SELECT id FROM pruned WHERE id NOT IN (SELECT job FROM temp.lines)";

fn check_pruned(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    for (sql, what) in
        [(PRUNED_AND_THERE, "is there"), (PRUNED_WITHOUT_LINES, "no line speaks of it any more")]
    {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            check_left(JobId::from_u128(u128_of(row, 0)?), what, report);
        }
    }
    Ok(())
}

/// Runs of named tasks, with the job that a task was first, if a job id was named.
const RUNS: &str = "
    SELECT run.job, run.tenant, run.task, first, last, ended, next_attempt
    FROM (SELECT job, tenant, task, first, last, ended FROM temp.runs
          UNION ALL
          SELECT id, tenant, id, 1, attempt,
              state IN ('succeeded', 'partial', 'failed', 'cancelled') FROM jobs
          WHERE task_id IS NULL AND (tenant, id) IN (SELECT tenant, task_id FROM tasks)) AS run
    LEFT JOIN tasks ON tasks.tenant = run.tenant AND tasks.task_id = run.task
    ORDER BY run.tenant, run.task, first, last, run.job";

fn check_runs(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut runs = RunCheck::default();
    let mut statement = connection.prepare(RUNS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let job = JobId::from_u128(u128_of(row, 0)?);
        if let Some(run) = readable(run_of(row), &format!("the task of {job}"), report)? {
            runs.check(run, report);
        }
    }
    Ok(())
}

/// Past the unique index: a broken index must not hide what it should have prevented.
const KEYS: &str = "
    SELECT id, tenant, idempotency_scope, idempotency_key FROM jobs NOT INDEXED
    WHERE idempotency_key IS NOT NULL
    ORDER BY tenant, idempotency_scope, idempotency_key";

fn check_keys(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut keys = KeyCheck::default();
    let mut statement = connection.prepare(KEYS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (name, job) = key_of(row)?;
        keys.check(name, job, report);
    }
    Ok(())
}

fn check_letters(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut statement = connection.prepare(LETTERS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(letter) = readable(letter_of(connection, row), &told(row), report)? {
            check_letter(&letter, report);
        }
    }
    Ok(())
}

fn check_results(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut statement = connection.prepare(RESULTS)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if let Some(pair) = readable(inbox_pair_of(row), "a result of the inbox", report)? {
            check_inbox(&pair, report);
        }
    }
    Ok(())
}

/// Came with the fourth schema, in which the first note could be written.
const HAS_NOTES: &str =
    "SELECT count(*) > 0 FROM main.sqlite_schema WHERE type = 'table' AND name = 'notes'";
const NOT_FOUND: &str = "
    SELECT event, name FROM (SELECT event, tenant, about, name, at FROM temp.noted
        EXCEPT SELECT event, tenant, about, name, at FROM notes) ORDER BY event";
const NOT_TOLD: &str = "
    SELECT event, name FROM (SELECT event, tenant, about, name, at FROM notes
        EXCEPT SELECT event, tenant, about, name, at FROM temp.noted) ORDER BY event";

fn check_notes(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    if !connection.query_row(HAS_NOTES, [], |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    let both = [(NOT_FOUND, "is not found there"), (NOT_TOLD, "is found there and not told")];
    for (sql, what) in both {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (event, name): (i64, String) = (row.get(0)?, row.get(1)?);
            report.add(Invariant::Noted, format!("event {event}, a note about {name}, {what}"));
        }
    }
    Ok(())
}

/// Came with the sixth schema.
const HAS_ACTS: &str =
    "SELECT count(*) > 0 FROM main.sqlite_schema WHERE type = 'table' AND name = 'acts'";
/// Where a program that does not know of acts may have served beside others, some may not be found.
const ACTS_NOT_FOUND: &str = "
    SELECT event FROM temp.acted AS told
    WHERE is_sure AND event >= (SELECT value FROM meta WHERE name = 'acts_from')
        AND NOT EXISTS (SELECT 1 FROM meta WHERE name = 'many_writers')
        AND NOT EXISTS (SELECT 1 FROM acts WHERE event = told.event AND tenant = told.tenant)
    ORDER BY event";
const ACTS_NOT_TOLD: &str = "
    SELECT event FROM acts AS found
    WHERE NOT EXISTS (SELECT 1 FROM temp.acted WHERE event = found.event AND tenant = found.tenant)
    ORDER BY event";

fn check_acts(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    // A log with a hole is told as a hole: what stood there cannot be judged.
    if report.violations.iter().any(|it| it.invariant == Invariant::LogContiguous) {
        return Ok(());
    }
    if !connection.query_row(HAS_ACTS, [], |row| row.get::<_, bool>(0))? {
        return Ok(());
    }
    let both = [
        (ACTS_NOT_FOUND, "tells what a person did, and is not found among the acts"),
        (ACTS_NOT_TOLD, "is found among the acts, and tells of none"),
    ];
    for (sql, what) in both {
        let mut statement = connection.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            report.add(Invariant::Acted, format!("event {} {what}", row.get::<_, i64>(0)?));
        }
    }
    Ok(())
}

const STILL_WAITING: &str = "
    SELECT seq, hex(job_id) FROM inbox
    WHERE job_id IN (SELECT id FROM jobs) OR job_id IN (SELECT job_id FROM inbox_results)";

fn check_waiting(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut statement = connection.prepare(STILL_WAITING)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (seq, id): (i64, String) = (row.get(0)?, row.get(1)?);
        let sentence = format!("row {seq} of the inbox waits, and its id {id} is taken already");
        report.add(Invariant::InboxOnce, sentence);
    }
    Ok(())
}

const SET_ASIDE: &str = "SELECT id, why FROM inbox_set_aside ORDER BY id";

fn check_set_aside(connection: &Connection, report: &mut Report) -> SqlResult<()> {
    let mut statement = connection.prepare(SET_ASIDE)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (id, why): (i64, String) = (row.get(0)?, row.get(1)?);
        let sentence = format!("row {id} of inbox_set_aside could not be promoted: {why}");
        report.add(Invariant::InboxSetAside, sentence);
    }
    Ok(())
}

/// What a row calls itself, for a row that cannot be read.
fn told(row: &Row<'_>) -> String {
    u128_of(row, 0).map_or_else(|_| "a letter".to_owned(), |id| format!("letter {id:032x}"))
}

/// A row that cannot be what it should be is a violation; an error of the database is an error.
fn readable<T>(result: SqlResult<T>, what: &str, report: &mut Report) -> SqlResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.sqlite_error_code().is_some() => Err(error),
        Err(error) => {
            report.add(Invariant::Readable, format!("{what} cannot be read: {error}"));
            Ok(None)
        }
    }
}
