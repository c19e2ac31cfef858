//! Why a job is not running: one look at all that could say so.

use rusqlite::{Connection, params};
use windlass_kernel::{Job, JobId, Lane, Timestamp};

use super::job::read_job;
use crate::{
    read::{ListeningWorker, Scope, Standing},
    sqlite::{
        SqlResult,
        row::{
            column::{json_of, text_of, time_or_none, u128_of},
            job::Loaded,
            rule::load_book,
        },
    },
    standing::{HeldJob, StandingRows},
};

/// What keeps the job. Of the workers that listen, those are there, too, that somebody vouched for.
pub(crate) fn read_standing(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
    now: Timestamp,
) -> SqlResult<Option<Standing>> {
    let Some(Loaded { job, place }) = read_job(connection, scope, id)? else { return Ok(None) };
    let book = load_book(connection)?;
    let held = read_held(connection)?;
    let before = read_before(connection, &job, place.seq)?;
    let listening = read_listening(connection, now)?;
    let seen = StandingRows { lane: place.lane, book, held, before, listening, job };
    Ok(Some(seen.standing(scope, now)))
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT j.id, g.queue, g.tenant, g.kind, j.lane, s.worker, iif(j.state = 'running', j.updated_at, NULL)
    FROM jobs j JOIN job_groups g ON g.id = j.group_id JOIN sessions s ON s.id = j.lease_session
    WHERE j.lease_session IS NOT NULL ORDER BY j.seq";

fn read_held(connection: &Connection) -> SqlResult<Vec<HeldJob>> {
    let mut statement = connection.prepare_cached(HELD)?;
    let rows = statement.query_map([], |row| {
        Ok(HeldJob {
            id: JobId::from_u128(u128_of(row, 0)?),
            queue: text_of(row, 1)?,
            tenant: text_of(row, 2)?,
            kind: text_of(row, 3)?,
            lane: Lane::new(row.get(4)?),
            worker: text_of(row, 5)?,
            started_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
        })
    })?;
    rows.collect()
}

/// Jobs of the same queue and tenant that can be claimed and come first. Served by the index `jobs_ready`.
const BEFORE: &str = "
    SELECT count(*) FROM (
        SELECT 1 FROM job_groups g CROSS JOIN jobs j ON j.group_id = g.id
        WHERE g.queue = ?1 AND g.tenant = ?2 AND (j.state = 'queued' OR j.state = 'interrupted')
            AND j.rank <= ?3 AND (j.rank, j.seq) < (?3, ?4)
        LIMIT ?5)";

fn read_before(connection: &Connection, job: &Job, seq: i64) -> SqlResult<u64> {
    let spec = &job.spec;
    let (rank, limit) = (spec.rank().0, Standing::BEFORE_MAX);
    let row = params![spec.queue.as_str(), spec.tenant.as_str(), rank, seq, limit];
    connection.prepare_cached(BEFORE)?.query_row(row, |row| row.get(0))
}

const LISTENING: &str = "
    SELECT worker, listens, listened_at, vouched FROM sessions
    WHERE listens IS NOT NULL AND (vouched = 1 OR listened_at > ?1 OR lapses_at > ?2) ORDER BY id";

/// Workers that said a short while ago what they listen to, those whose leases last, and those that somebody vouched for.
pub(crate) fn read_listening(
    connection: &Connection,
    now: Timestamp,
) -> SqlResult<Vec<ListeningWorker>> {
    let from = now.minus(Standing::LISTENS_FOR);
    let mut statement = connection.prepare_cached(LISTENING)?;
    let rows = statement.query_map([from.as_micros(), now.as_micros()], |row| {
        let (worker, listens) = (text_of(row, 0)?, json_of(row, 1)?);
        Ok(ListeningWorker::of_row(worker, listens, row.get(3)?, time_or_none(row, 2)?))
    })?;
    rows.collect()
}
