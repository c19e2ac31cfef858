//! Rows of the file as the values that the rules work on.

use std::time::Duration;

use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Row, types::ValueRef};
use windlass_kernel::{DlqId, Job, JobId, LetterState, job::Origin};

use crate::{
    check::values::{
        CameFrom, Group, InboxPair, InboxRow, JobRow, KeyName, LeaseColumns, LetterRow, Line,
        PrunedRow, Run,
    },
    read::Scope,
    sqlite::{
        SqlResult,
        claim::names::Stored,
        read::feed::read_feed_from,
        row::{
            column::{id_or_none, json_of, text_of, time_of, time_or_none, u128_of},
            job::{Loaded, job_and_lease_of, job_columns, unleased_job_of},
            letter::read_approvals,
        },
    },
};

/// Every job by id, with the columns that only the store knows.
pub(super) const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    ", timer_at, dlq_id,
     coalesce(payload, (SELECT payload FROM payloads WHERE payloads.seq = jobs.seq)),
     (SELECT count(*) FROM dlq_items WHERE dlq_items.job_id = jobs.id)
     FROM jobs ORDER BY id"
);

const OLDER_LOG_IDS: &str = "SELECT log_id FROM job_log WHERE seq = ?1 ORDER BY log_id";
const OUTPUT: &str = "SELECT result, remaining FROM outputs WHERE seq = ?1 AND attempt = ?2";
const IS_CHILD: &str = "SELECT count(*) FROM children WHERE parent = ?1 AND seq = ?2";
const CAME_FROM: &str = "SELECT tenant, requeued_as FROM dlq_items WHERE id = ?1";

/// Reads what belongs to a job's row and stands elsewhere.
pub(super) struct JobReader<'a> {
    connection: &'a Connection,
    older_log_ids: CachedStatement<'a>,
    output: CachedStatement<'a>,
    came_from: CachedStatement<'a>,
    is_child: CachedStatement<'a>,
    pruned: PrunedReader<'a>,
}

impl<'a> JobReader<'a> {
    pub(super) fn new(connection: &'a Connection) -> SqlResult<Self> {
        Ok(Self {
            connection,
            older_log_ids: connection.prepare_cached(OLDER_LOG_IDS)?,
            output: connection.prepare_cached(OUTPUT)?,
            came_from: connection.prepare_cached(CAME_FROM)?,
            is_child: connection.prepare_cached(IS_CHILD)?,
            pruned: PrunedReader::new(connection)?,
        })
    }

    /// The job of a row of [`JOBS`].
    pub(super) fn job_row(&mut self, row: &Row<'_>) -> SqlResult<JobRow> {
        let (Loaded { job, place }, lease) = job_and_lease_of(row, &Stored(self.connection))?;
        let older = self.older_log_ids.query_map([place.seq], |row| row.get(0))?;
        let mut log_ids: Vec<u64> = older.collect::<SqlResult<_>>()?;
        log_ids.extend(place.history.log_ids());
        let (result, remaining) = self.output(&job, place.seq)?;
        Ok(JobRow {
            group_id: row.get(3)?,
            timer_at: time_or_none(row, 25)?,
            dlq_id: id_or_none(row, 26)?.map(DlqId::from_u128),
            lease: LeaseColumns { session: row.get(15)?, beat_at: lease.held.map(|it| it.beat_at) },
            log_ids,
            chain: place.history.chain(),
            payload: row.get(27)?,
            result,
            remaining,
            letters: row.get(28)?,
            parent_knows: self.parent_knows(&job, place.seq)?,
            came_from: self.came_from(&job)?,
            origin_forgotten: match job.spec.origin {
                Origin::Requeued(letter) => {
                    self.pruned.may_be_forgotten(JobId::from_u128(letter.as_u128()))?
                }
                Origin::Enqueued | Origin::Rerun(_) => false,
            },
            job,
        })
    }

    fn output(&mut self, job: &Job, seq: i64) -> SqlResult<(Option<String>, Option<String>)> {
        let text = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let found = self.output.query_row((seq, job.attempt), text).optional()?;
        Ok(found.unwrap_or_default())
    }

    fn parent_knows(&mut self, job: &Job, seq: i64) -> SqlResult<bool> {
        let Some(parent) = job.spec.parent else { return Ok(true) };
        let child = (parent.as_u128().to_be_bytes(), seq);
        self.is_child.query_row(child, |row| row.get(0))
    }

    fn came_from(&mut self, job: &Job) -> SqlResult<Option<CameFrom>> {
        let Origin::Requeued(letter) = job.spec.origin else { return Ok(None) };
        let id = letter.as_u128().to_be_bytes();
        self.came_from
            .query_row([id], |row| {
                let requeued_as = id_or_none(row, 1)?.map(JobId::from_u128);
                Ok(CameFrom { tenant: row.get(0)?, requeued_as })
            })
            .optional()
    }
}

const PRUNED: &str = "SELECT at, least_ms, version, rows FROM pruned WHERE id = ?1";

/// Reads what retention left of a job.
pub(super) struct PrunedReader<'a> {
    pruned: CachedStatement<'a>,
    whole_from: u64,
}

impl<'a> PrunedReader<'a> {
    pub(super) fn new(connection: &'a Connection) -> SqlResult<Self> {
        let whole_from = match read_feed_from(connection) {
            // If the stored beginning of the feed is no number of an event, the check of the log tells it.
            Err(error) if error.sqlite_error_code().is_none() => 1,
            read => read?,
        };
        Ok(Self { pruned: connection.prepare_cached(PRUNED)?, whole_from })
    }

    pub(super) fn row(&mut self, job: JobId) -> SqlResult<Option<PrunedRow>> {
        let row = |row: &Row<'_>| {
            let least = Duration::from_millis(row.get(1)?);
            Ok(PrunedRow { at: time_of(row, 0)?, least, version: row.get(2)?, rows: row.get(3)? })
        };
        self.pruned.query_row([job.as_u128().to_be_bytes()], row).optional()
    }

    /// Can retention have taken a job that is not there? It knows for as long as the log speaks of it.
    /// After that nobody knows; but then the log was thinned, which is done for forgotten jobs alone.
    pub(super) fn may_be_forgotten(&mut self, job: JobId) -> SqlResult<bool> {
        Ok(self.whole_from > 1 || self.row(job)?.is_some())
    }
}

pub(super) fn group_of(row: &Row<'_>) -> SqlResult<(i64, Group)> {
    let group =
        Group { queue: row.get(1)?, tenant: row.get(2)?, kind: row.get(3)?, isolated: row.get(4)? };
    Ok((row.get(0)?, group))
}

/// A line that was put aside for its job.
pub(super) fn line_of(row: &Row<'_>) -> SqlResult<(JobId, Line)> {
    let line =
        Line { log_id: row.get(1)?, tenant: row.get(2)?, at: time_of(row, 3)?, text: row.get(4)? };
    Ok((JobId::from_u128(u128_of(row, 0)?), line))
}

/// Results of the inbox and the lines that tell them, side by side.
pub(super) const RESULTS: &str = "
    SELECT coalesce(result.event, told.event), result.job_id, result.tenant, result.at, outcome,
        existing, code, why, op IS NOT NULL AND payload IS NOT NULL, told.log_id, told.tenant, told.at,
        told.line
    FROM inbox_results AS result FULL JOIN temp.told AS told ON told.event = result.event
    ORDER BY 1";

pub(super) fn inbox_pair_of(row: &Row<'_>) -> SqlResult<InboxPair> {
    let result = || -> SqlResult<InboxRow> {
        Ok(InboxRow {
            job_id: JobId::from_u128(u128_of(row, 1)?),
            tenant: row.get(2)?,
            at: time_of(row, 3)?,
            outcome: row.get(4)?,
            existing: id_or_none(row, 5)?.map(JobId::from_u128),
            code: row.get(6)?,
            why: row.get(7)?,
            is_kept: row.get(8)?,
        })
    };
    let line = || -> SqlResult<Line> {
        let (log_id, tenant) = (row.get(9)?, row.get(10)?);
        Ok(Line { log_id, tenant, at: time_of(row, 11)?, text: row.get(12)? })
    };
    let is_there = |column: usize| Ok::<_, rusqlite::Error>(row.get_ref(column)? != ValueRef::Null);
    Ok(InboxPair {
        event: row.get(0)?,
        row: if is_there(1)? { Some(result()?) } else { None },
        line: if is_there(9)? { Some(line()?) } else { None },
    })
}

pub(super) fn run_of(row: &Row<'_>) -> SqlResult<Run> {
    Ok(Run {
        job: JobId::from_u128(u128_of(row, 0)?),
        tenant: text_of(row, 1)?,
        task: match row.get_ref(2)? {
            ValueRef::Blob(_) => JobId::from_u128(u128_of(row, 2)?).to_string(),
            _ => row.get(2)?,
        },
        first: row.get(3)?,
        last: row.get(4)?,
        ended: row.get(5)?,
        next_attempt: row.get(6)?,
    })
}

pub(super) fn key_of(row: &Row<'_>) -> SqlResult<(KeyName, JobId)> {
    let key = match row.get_ref(3)? {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.to_owned(),
        _ => Vec::new(),
    };
    let name = KeyName { tenant: row.get(1)?, scope: row.get(2)?, key };
    Ok((name, JobId::from_u128(u128_of(row, 0)?)))
}

pub(super) const LETTERS: &str = "
    SELECT id, tenant, job_id, state, code, created_at, requeued_as, closed_at, letter
    FROM dlq_items ORDER BY id";

/// The letter of a row of [`LETTERS`], with everything it names.
pub(super) fn letter_of(connection: &Connection, row: &Row<'_>) -> SqlResult<LetterRow> {
    let id = DlqId::from_u128(u128_of(row, 0)?);
    let job_id = JobId::from_u128(u128_of(row, 2)?);
    let requeued_as = id_or_none(row, 6)?.map(JobId::from_u128);
    let heir = requeued_as.map(|heir| job_named(connection, heir)).transpose()?;
    let heir_forgotten = match requeued_as {
        Some(heir) => PrunedReader::new(connection)?.may_be_forgotten(heir)?,
        None => false,
    };
    Ok(LetterRow {
        id,
        tenant: row.get(1)?,
        job_id,
        state: LetterState::parse(row.get_ref(3)?.as_str()?),
        code: row.get(4)?,
        created_at: time_of(row, 5)?,
        requeued_as,
        closed_at: time_or_none(row, 7)?,
        letter: json_of(row, 8)?,
        job: job_named(connection, job_id)?,
        heir: heir.flatten(),
        heir_forgotten,
        approvals: read_approvals(connection, &Scope::Every, id)?,
    })
}

const JOB: &str = concat!("SELECT ", job_columns!(), " FROM jobs WHERE id = ?1");

fn job_named(connection: &Connection, id: JobId) -> SqlResult<Option<Job>> {
    let mut statement = connection.prepare_cached(JOB)?;
    let names = Stored(connection);
    let job = |row: &Row<'_>| unleased_job_of(row, &names).map(|loaded| loaded.job);
    statement.query_row([id.as_u128().to_be_bytes()], job).optional()
}
