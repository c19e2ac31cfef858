//! Reads by noun. Nothing here changes anything.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{
    Approval, DeadLetter, DlqId, Epoch, Event, Job, JobId, Spec, TaskId, TenantId, Timestamp,
};

use super::{
    SqlResult,
    load::{self, Loaded, Place, TaskName, text_of, time_of, u128_of},
    names::Stored,
};
use crate::{
    Error,
    history_page::PageSearch,
    log,
    read::{
        AttemptsPage, EventsPage, Feed, FeedFiller, OldestReady, Output, Progress, Scope,
        SessionView, StoredFollowUp,
    },
};

/// The job of this id, with the lease that its session gives it.
pub(super) fn read_job(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<Loaded>> {
    let loaded = load::load_job(connection, id, &Stored(connection))?;
    Ok(loaded.filter(|loaded| scope.admits(&loaded.job.spec.tenant)))
}

/// The newest of a task, tenant by tenant. Served by the index `jobs_task`.
const OF_TASK: &str = "
    SELECT (SELECT id FROM jobs WHERE tenant = t.tenant AND task_id = ?2 ORDER BY attempt DESC LIMIT 1)
    FROM (SELECT DISTINCT tenant FROM job_groups WHERE ?1 IS NULL OR tenant = ?1) AS t";

/// The job of a task with the highest attempt.
pub(super) fn read_newest_of_task(
    connection: &Connection,
    scope: &Scope,
    task: &TaskId,
) -> SqlResult<Option<Job>> {
    let name = TaskName::of(task);
    let mut statement = connection.prepare_cached(OF_TASK)?;
    let rows = statement.query_map(params![scope.word(), name], |row| load::id_or_none(row, 0))?;
    let mut ids: Vec<JobId> = Vec::new();
    for id in rows {
        ids.extend(id?.map(JobId::from_u128));
    }
    // A job that named no task is the first of its own.
    if let TaskName::Own(id) = name {
        ids.push(id);
    }
    let mut newest: Option<Job> = None;
    for id in ids {
        let job = read_job(connection, scope, id)?.map(|loaded| loaded.job);
        let job = job.filter(|job| job.spec.task_id == *task);
        newest = newest.into_iter().chain(job).max_by_key(|job| (job.attempt, job.id));
    }
    Ok(newest)
}

pub(super) const LOG_IDS: &str = "SELECT log_id FROM job_log WHERE seq = ?1 ORDER BY log_id";
const LOG_ROW: &str = "SELECT at, events FROM log WHERE id = ?1";

/// The history of a job, in order.
pub(super) fn read_events(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Result<Vec<Event>, Error>> {
    let Some(Loaded { job, place }) = read_job(connection, scope, id)? else {
        return Ok(Ok(Vec::new()));
    };
    let mut events = Vec::new();
    let mut by_id = connection.prepare_cached(LOG_ROW)?;
    for log_id in log_ids(connection, &place)? {
        let row = |row: &rusqlite::Row<'_>| Ok((time_of(row, 0)?, row.get::<_, String>(1)?));
        let (at, text) = by_id.query_row([log_id], row)?;
        if let Err(error) = add_events(&text, at, id, &job.spec, &mut events) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(events))
}

fn add_events(
    text: &str,
    at: Timestamp,
    id: JobId,
    spec: &Arc<Spec>,
    events: &mut Vec<Event>,
) -> Result<(), Error> {
    for line in log::lines(text)?.iter().filter(|line| log::speaks_of(line.get(), id)) {
        events.push(log::decode(line.get(), at, spec)?);
    }
    Ok(())
}

/// A part of the history of a job. The number of a log row is that of its first event in the feed.
pub(super) fn read_events_after(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
    after: u64,
    limit: usize,
) -> SqlResult<Result<Option<EventsPage>, Error>> {
    let Some(Loaded { job, place }) = read_job(connection, scope, id)? else {
        return Ok(Ok(None));
    };
    let mut search = PageSearch::new(id, job.version, log_ids(connection, &place)?, after, limit);
    let mut by_id = connection.prepare_cached(LOG_ROW)?;
    loop {
        let next = search.next();
        if next.is_empty() {
            return Ok(search.finish(&job.spec).map(Some));
        }
        for log_id in next {
            let row = |row: &rusqlite::Row<'_>| Ok((time_of(row, 0)?, row.get::<_, String>(1)?));
            let (at, text) = by_id.query_row([log_id], row)?;
            if let Err(error) = search.add(log_id, at, log_id, &text) {
                return Ok(Err(error));
            }
        }
    }
}

/// The log rows that speak of a job, oldest first.
fn log_ids(connection: &Connection, place: &Place) -> SqlResult<Vec<u64>> {
    let mut older = connection.prepare_cached(LOG_IDS)?;
    let mut ids: Vec<u64> =
        older.query_map([place.seq], |row| row.get(0))?.collect::<SqlResult<_>>()?;
    ids.extend(place.history.log_ids());
    Ok(ids)
}

const LAST_OUTPUT: &str = "
    SELECT attempt, result, remaining, stats FROM outputs WHERE seq = ?1
    ORDER BY attempt DESC LIMIT 1";

/// What the handler of the last attempt gave back that gave back anything.
pub(super) fn read_last_output(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<Output>> {
    let Some(loaded) = read_job(connection, scope, id)? else { return Ok(None) };
    let mut statement = connection.prepare_cached(LAST_OUTPUT)?;
    let output = |row: &rusqlite::Row<'_>| {
        let (attempt, result, remaining, stats) =
            (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok(Output { attempt, result, remaining, stats })
    };
    statement.query_row([loaded.place.seq], output).optional()
}

const PROGRESS: &str = "
    SELECT epoch, at, value FROM progress
    WHERE seq = (SELECT seq FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2))";

/// How far the handler of a job said it had come.
pub(super) fn read_progress(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<Progress>> {
    let mut statement = connection.prepare_cached(PROGRESS)?;
    let progress = |row: &rusqlite::Row<'_>| {
        let epoch = Epoch::new(row.get(0)?);
        Ok(Progress { epoch, at: time_of(row, 1)?, value: row.get(2)? })
    };
    statement.query_row(params![id.as_u128().to_be_bytes(), scope.word()], progress).optional()
}

const STATS: &str = "
    SELECT stats FROM outputs
    WHERE seq = (SELECT seq FROM jobs WHERE id = ?1) AND attempt = ?2";

/// Attempts of a job: what its history tells, and the figures that handlers gave.
pub(super) fn read_attempts(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
    (after, limit): (u32, usize),
) -> SqlResult<Result<AttemptsPage, Error>> {
    let events = match read_events(connection, scope, id)? {
        Ok(events) => events,
        Err(error) => return Ok(Err(error)),
    };
    let mut statement = connection.prepare_cached(STATS)?;
    let mut stats = |attempt: u32| -> SqlResult<Option<String>> {
        let row = params![id.as_u128().to_be_bytes(), attempt];
        Ok(statement.query_row(row, |row| row.get(0)).optional()?.flatten())
    };
    AttemptsPage::fill(windlass_kernel::attempts(&events), after, limit, &mut stats).map(Ok)
}

/// A dead letter as it stands.
pub(super) fn read_letter(
    connection: &Connection,
    scope: &Scope,
    id: DlqId,
) -> SqlResult<Option<DeadLetter>> {
    let letter = load::load_letter(connection, id)?;
    Ok(letter.filter(|letter| scope.admits(&letter.tenant)))
}

const APPROVALS: &str = "
    SELECT principal, step, reason, a.at FROM approvals a JOIN dlq_items d ON d.id = a.dlq_id
    WHERE a.dlq_id = ?1 AND (?2 IS NULL OR d.tenant = ?2) ORDER BY a.at, step DESC";

/// What people said about a dead letter, in order.
pub(super) fn read_approvals(
    connection: &Connection,
    scope: &Scope,
    dlq_id: DlqId,
) -> SqlResult<Vec<Approval>> {
    let mut statement = connection.prepare_cached(APPROVALS)?;
    let id = dlq_id.as_u128().to_be_bytes();
    let rows = statement.query_map(params![id, scope.word()], |row| {
        let step = row.get_ref(1)?.as_str()?;
        let step = windlass_kernel::letter::ApprovalStep::parse(step);
        Ok(Approval {
            dlq_id,
            principal: text_of(row, 0)?,
            step: step.ok_or(rusqlite::Error::InvalidQuery)?,
            reason: row.get(2)?,
            at: time_of(row, 3)?,
        })
    })?;
    rows.collect()
}

/// Served by the primary key of the log.
const FEED: &str = "
    SELECT id, at, tenant, count, iif(?3 IS NULL OR tenant = ?3, events, '[]') FROM log
    WHERE id >= coalesce((SELECT max(id) FROM log WHERE id <= ?1 + 1), 0) ORDER BY id LIMIT ?2";

const FEED_FROM: &str = "SELECT value FROM meta WHERE name = 'feed_from'";

/// From this number on no event was ever taken out.
pub(super) fn read_feed_from(connection: &Connection) -> SqlResult<u64> {
    let mut from = connection.prepare_cached(FEED_FROM)?;
    Ok(from.query_row([], |row| row.get(0)).optional()?.unwrap_or(1))
}

/// Events after a number, in the order of the store. There is one writer, so a number that is there
/// will never have another before it.
pub(super) fn read_feed(
    connection: &Connection,
    scope: &Scope,
    after: u64,
    limit: u32,
) -> SqlResult<Result<Feed, Error>> {
    let from = read_feed_from(connection)?;
    if after.saturating_add(1) < from {
        return Ok(Err(Error::FeedGone { from }));
    }
    if Feed::is_beyond(after) {
        return Ok(Ok(Feed::empty(after)));
    }
    let mut statement = connection.prepare_cached(FEED)?;
    let mut found = statement.query(params![after, limit.max(1), scope.word()])?;
    let mut filler = FeedFiller::new(after, limit);
    while let Some(row) = found.next()? {
        let (first, at): (u64, Timestamp) = (row.get(0)?, time_of(row, 1)?);
        let text: String = row.get(4)?;
        let lines = match log::lines(&text) {
            Ok(lines) => lines,
            Err(error) => return Ok(Err(error)),
        };
        if filler.add(first, row.get(3)?, at, &text_of(row, 2)?, &lines) {
            break;
        }
    }
    Ok(Ok(filler.feed))
}

/// Served by the primary key of the log.
pub(super) const FEED_END: &str = "SELECT id + count - 1 FROM log ORDER BY id DESC LIMIT 1";

/// The number of the newest event.
pub(super) fn read_feed_end(connection: &Connection) -> SqlResult<u64> {
    let mut statement = connection.prepare_cached(FEED_END)?;
    let newest = statement.query_row([], |row| row.get::<_, u64>(0)).optional()?;
    Ok(newest.unwrap_or(0).max(read_feed_from(connection)?.saturating_sub(1)))
}

const COUNTS: &str = "
    SELECT queue, state, sum(jobs) FROM (
        SELECT group_id, state, count(*) AS jobs FROM jobs
        WHERE ?1 IS NULL OR tenant = ?1 GROUP BY group_id, state)
    JOIN job_groups ON job_groups.id = group_id
    GROUP BY queue, state";

/// How many jobs there are, by queue and state.
pub(super) fn read_counts(
    connection: &Connection,
    scope: &Scope,
) -> SqlResult<Vec<(String, String, u64)>> {
    let mut statement = connection.prepare_cached(COUNTS)?;
    let count = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows = statement.query_map([scope.word()], count)?;
    rows.collect()
}

/// A session that never had a lease is only a name.
const SESSION_VIEWS: &str = "
    SELECT worker, lapses_at, renewals,
        (SELECT count(*) FROM jobs WHERE lease_session = sessions.id)
    FROM sessions WHERE lapses_at > 0 ORDER BY worker";

/// Every session, with how much it holds.
pub(super) fn read_sessions(connection: &Connection) -> SqlResult<Vec<SessionView>> {
    let mut statement = connection.prepare_cached(SESSION_VIEWS)?;
    let rows = statement.query_map([], |row| {
        let (worker, lapses_at) = (text_of(row, 0)?, time_of(row, 1)?);
        Ok(SessionView { worker, lapses_at, renewals: row.get(2)?, held: row.get(3)? })
    })?;
    rows.collect()
}

/// Served by the index `jobs_ready`: it looks at all that is ready, and at nothing else. Who is next need not be who
/// waits longest: the one is found by rank, the other by time.
const OLDEST_READY: &str = "
    SELECT tenant, queue, min(since) FROM (
        SELECT group_id, min(updated_at) AS since FROM jobs INDEXED BY jobs_ready
        WHERE (state = 'queued' OR state = 'interrupted') AND (?1 IS NULL OR tenant = ?1)
        GROUP BY group_id)
    JOIN job_groups ON job_groups.id = group_id GROUP BY tenant, queue ORDER BY tenant, queue";

/// For each queue of a tenant since when the job has been ready that waits longest.
pub(super) fn read_oldest_ready(
    connection: &Connection,
    scope: &Scope,
) -> SqlResult<Vec<OldestReady>> {
    let mut statement = connection.prepare_cached(OLDEST_READY)?;
    let rows = statement.query_map([scope.word()], |row| {
        let (tenant, queue) = (text_of(row, 0)?, text_of(row, 1)?);
        Ok(OldestReady { tenant, queue, since: time_of(row, 2)? })
    })?;
    rows.collect()
}

const FOLLOW_UPS: &str = "SELECT id, tenant, what FROM follow_ups ORDER BY id LIMIT ?1";

/// What follows for other jobs and is not carried out yet, oldest first.
pub(super) fn read_follow_ups(
    connection: &Connection,
    max: usize,
) -> SqlResult<Vec<StoredFollowUp>> {
    let mut statement = connection.prepare_cached(FOLLOW_UPS)?;
    let rows = statement.query_map([i64::try_from(max).unwrap_or(i64::MAX)], |row| {
        let (tenant, follow_up) = (text_of(row, 1)?, load::json_of(row, 2)?);
        Ok(StoredFollowUp { id: row.get(0)?, tenant, follow_up })
    })?;
    rows.collect()
}

const OPEN_CHILDREN: &str = "
    SELECT jobs.id FROM children JOIN jobs ON jobs.seq = children.seq
    WHERE children.parent = ?1 AND jobs.tenant = ?2
        AND children.seq > coalesce((SELECT seq FROM jobs WHERE id = ?4), -1)
        AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
    ORDER BY children.seq LIMIT ?3";

/// Children of a job that are not at their end, oldest first.
pub(super) fn read_open_children(
    connection: &Connection,
    tenant: &TenantId,
    parent: JobId,
    after: Option<JobId>,
    max: usize,
) -> SqlResult<Vec<JobId>> {
    let mut statement = connection.prepare_cached(OPEN_CHILDREN)?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let after = after.map(|id| id.as_u128().to_be_bytes());
    let of = params![parent.as_u128().to_be_bytes(), tenant.as_str(), limit, after];
    let rows = statement.query_map(of, |row| Ok(JobId::from_u128(u128_of(row, 0)?)))?;
    rows.collect()
}

const PAYLOAD: &str = "
    SELECT coalesce(payload, (SELECT payload FROM payloads WHERE payloads.seq = jobs.seq))
    FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2)";

/// The payload of a job, byte for byte.
pub(super) fn read_payload(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<String>> {
    let mut statement = connection.prepare_cached(PAYLOAD)?;
    let of = params![id.as_u128().to_be_bytes(), scope.word()];
    statement.query_row(of, |row| row.get(0)).optional()
}
