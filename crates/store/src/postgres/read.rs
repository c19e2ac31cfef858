//! Reads by noun. Nothing here changes anything.

use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    Approval, Attempt, DeadLetter, DlqId, Epoch, Event, Job, JobId, Payload, Spec, TenantId,
    Timestamp, letter::ApprovalStep,
};

use super::{
    Failure, PgResult,
    load::{
        Loaded, id_of, job_columns, job_of, job_tables, json_of, number, number_32, text_of,
        time_of,
    },
    pipeline::{Ask, run_one},
    types::{Time, Uuid, signed},
};
use crate::{
    Error, log,
    read::{
        Cursor, FeedEvent, JobFilter, LetterFilter, OldestReady, Output, Page, Position, Progress,
        SessionView, StoredFollowUp,
    },
};

const JOB: &str = concat!("SELECT ", job_columns!(), job_tables!(), "WHERE j.id = $1");

/// The job of this id, with the lease that its session gives it.
pub(super) async fn read_job(client: &ClientWrapper, id: JobId) -> PgResult<Option<Loaded>> {
    let rows = run_one(client, Ask::new(JOB).with(Uuid(id.as_u128()))).await?;
    rows.first().map(job_of).transpose()
}

/// In the order of its chain: each row that speaks of it is later than the one before.
const LOG_ROWS: &str = "
    SELECT at, events FROM log
    WHERE seq = ANY(ARRAY(SELECT seq FROM job_log WHERE id = $1) || $2::bigint[])";

/// The history of a job, in order.
pub(super) async fn read_events(client: &ClientWrapper, id: JobId) -> PgResult<Vec<Event>> {
    let Some(Loaded { job, place }) = read_job(client, id).await? else { return Ok(Vec::new()) };
    let inline: Vec<i64> = place.history.log_ids().map(signed).collect();
    let ask = Ask::new(LOG_ROWS).with(Uuid(id.as_u128())).with(inline);
    let mut events = Vec::new();
    for row in run_one(client, ask).await? {
        add_events(row.try_get(1)?, time_of(&row, 0)?, id, &job.spec, &mut events)?;
    }
    // What was written after the job was read is not part of it.
    events.sort_by_key(|event: &Event| event.number);
    events.retain(|event| event.number <= job.version);
    Ok(events)
}

fn add_events(
    text: &str,
    at: Timestamp,
    id: JobId,
    spec: &Arc<Spec>,
    events: &mut Vec<Event>,
) -> PgResult<()> {
    let lines = log::lines(text).map_err(Failure::Known)?;
    for line in lines.iter().filter(|line| log::speaks_of(line.get(), id)) {
        events.push(log::decode(line.get(), at, spec).map_err(Failure::Known)?);
    }
    Ok(())
}

const OUTPUTS: &str =
    "SELECT attempt, result, remaining, stats FROM outputs WHERE id = $1 ORDER BY attempt";

/// What handlers gave back, by attempt.
pub(super) async fn read_outputs(client: &ClientWrapper, id: JobId) -> PgResult<Vec<Output>> {
    let rows = run_one(client, Ask::new(OUTPUTS).with(Uuid(id.as_u128()))).await?;
    let output = |row: &Row| {
        Ok(Output {
            attempt: number_32(row, 0)?,
            result: row.try_get(1)?,
            remaining: row.try_get(2)?,
            stats: row.try_get(3)?,
        })
    };
    rows.iter().map(output).collect()
}

const PROGRESS: &str = "SELECT epoch, at, value FROM progress WHERE id = $1";

/// How far the handler of a job said it had come.
pub(super) async fn read_progress(client: &ClientWrapper, id: JobId) -> PgResult<Option<Progress>> {
    let rows = run_one(client, Ask::new(PROGRESS).with(Uuid(id.as_u128()))).await?;
    let progress = |row: &Row| {
        let epoch = Epoch::new(number(row, 0)?);
        Ok(Progress { epoch, at: time_of(row, 1)?, value: row.try_get(2)? })
    };
    rows.first().map(progress).transpose()
}

/// The attempts of a job: what its history tells, and the figures that handlers gave.
pub(super) async fn read_attempts(client: &ClientWrapper, id: JobId) -> PgResult<Vec<Attempt>> {
    let mut attempts = windlass_kernel::attempts(&read_events(client, id).await?);
    for output in read_outputs(client, id).await? {
        let attempt = attempts.iter_mut().find(|attempt| attempt.attempt == output.attempt);
        if let (Some(attempt), Some(stats)) = (attempt, output.stats) {
            attempt.stats = Payload::parse(&stats, usize::MAX).ok();
        }
    }
    Ok(attempts)
}

const APPROVALS: &str =
    "SELECT principal, step, reason, at FROM approvals WHERE dlq_id = $1 ORDER BY at, step DESC";

/// What people said about a dead letter, in order.
pub(super) async fn read_approvals(
    client: &ClientWrapper,
    dlq_id: DlqId,
) -> PgResult<Vec<Approval>> {
    let rows = run_one(client, Ask::new(APPROVALS).with(Uuid(dlq_id.as_u128()))).await?;
    let approval = |row: &Row| {
        let step = ApprovalStep::parse(row.try_get(1)?);
        Ok(Approval {
            dlq_id,
            principal: text_of(row, 0)?,
            step: step.ok_or_else(|| Failure::damaged("it is no step"))?,
            reason: row.try_get(2)?,
            at: time_of(row, 3)?,
        })
    };
    rows.iter().map(approval).collect()
}

/// Jobs that are not at an end, for tests and tools, oldest first.
const OPEN_JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
     ORDER BY j.created_at, j.id"
);

pub(super) async fn read_open_jobs(client: &ClientWrapper) -> PgResult<Vec<Job>> {
    let rows = run_one(client, Ask::new(OPEN_JOBS)).await?;
    rows.iter().map(|row| Ok(job_of(row)?.job)).collect()
}

const FEED_FROM: &str = "SELECT value::bigint FROM meta WHERE name = 'feed_from'";

/// Served by the primary keys of the feed and of the log.
const FEED: &str = "
    SELECT f.first, f.at, log.tenant, log.events
    FROM (SELECT first, at, seq FROM feed
          WHERE first >= coalesce((SELECT max(first) FROM feed WHERE first <= $1::bigint + 1), 0)
          ORDER BY first LIMIT $2) AS f
    JOIN log ON log.seq = f.seq ORDER BY f.first";

/// Events after a number, in the order of the store. Numbers are given one commit after the other, so one
/// that is there will never have another before it.
pub(super) async fn read_feed(
    client: &ClientWrapper,
    after: u64,
    rows: u32,
) -> PgResult<Vec<FeedEvent>> {
    let ask = Ask::new(FEED).with(signed(after)).with(i64::from(rows));
    let found = run_one(client, ask).await?;
    // Looked at last: what retention took in the meantime is noticed.
    let from = number(&run_one(client, Ask::new(FEED_FROM)).await?[0], 0)?;
    if after.saturating_add(1) < from {
        return Err(Failure::Known(Error::FeedGone { from }));
    }
    let mut feed = Vec::new();
    for row in &found {
        let (first, at) = (number(row, 0)?, time_of(row, 1)?);
        let lines = log::lines(row.try_get(3)?).map_err(Failure::Known)?;
        for (number, line) in (first..).zip(lines) {
            if number > after {
                let tenant = text_of(row, 2)?;
                feed.push(FeedEvent { number, tenant, at, line: line.get().to_owned() });
            }
        }
    }
    Ok(feed)
}

const COUNTS: &str = "
    SELECT queue, state, sum(jobs)::bigint FROM (
        SELECT group_id, state, count(*) AS jobs FROM jobs GROUP BY group_id, state) AS counted
    JOIN job_groups ON job_groups.id = group_id
    GROUP BY queue, state ORDER BY queue, state";

/// How many jobs there are, by queue and state.
pub(super) async fn read_counts(client: &ClientWrapper) -> PgResult<Vec<(String, String, u64)>> {
    let rows = run_one(client, Ask::new(COUNTS)).await?;
    let count = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?, number(row, 2)?));
    rows.iter().map(count).collect()
}

/// The greatest ids first, at most so many rows from a place on. Ids grow with time.
const JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.id < $1 ORDER BY j.id DESC LIMIT $2"
);

/// Jobs by filter, newest first.
pub(super) async fn read_jobs(
    client: &ClientWrapper,
    filter: &JobFilter,
    cursor: Cursor,
) -> PgResult<Page<Job>> {
    let mut below = cursor.from.map_or(u128::MAX, |from| from.id);
    let mut items = Vec::new();
    let mut left = Cursor::ROWS_MAX;
    while left > 0 {
        // A list that filters nothing finds all it needs at once.
        let step = i64::try_from(cursor.items()).unwrap_or(left).clamp(100, left.max(100));
        let rows = run_one(client, Ask::new(JOBS).with(Uuid(below)).with(step)).await?;
        for row in &rows {
            let Loaded { job, .. } = job_of(row)?;
            below = job.id.as_u128();
            if filter.matches(&job) {
                items.push(job);
                if items.len() == cursor.items() {
                    return Ok(Page { items, next: Some(Position { at: 0, id: below }) });
                }
            }
        }
        if i64::try_from(rows.len()).is_ok_and(|count| count < step) {
            return Ok(Page { items, next: None });
        }
        left -= step;
    }
    Ok(Page { items, next: Some(Position { at: 0, id: below }) })
}

/// Served by the index `dlq_items_list`.
const LETTERS: &str = "
    SELECT letter FROM dlq_items
    WHERE tenant = $1 AND ($2::text IS NULL OR state = $2) AND (created_at, id) < ($3, $4)
    ORDER BY created_at DESC, id DESC LIMIT $5";

/// Dead letters by filter, newest first.
pub(super) async fn read_letters(
    client: &ClientWrapper,
    filter: &LetterFilter,
    cursor: Cursor,
) -> PgResult<Page<DeadLetter>> {
    let before = cursor.from.map_or((Timestamp::MAX, u128::MAX), |from| {
        (Timestamp::from_micros(signed(from.at)), from.id)
    });
    let ask = Ask::new(LETTERS)
        .with(filter.tenant.as_str().to_owned())
        .with(filter.state.map(windlass_kernel::LetterState::as_str))
        .with(Time(before.0))
        .with(Uuid(before.1))
        .with(i64::try_from(cursor.items()).unwrap_or(i64::MAX));
    let rows = run_one(client, ask).await?;
    let items: Vec<DeadLetter> = rows.iter().map(|row| json_of(row, 0)).collect::<PgResult<_>>()?;
    let last = items.last().filter(|_| items.len() == cursor.items());
    let next = last.map(|letter| Position {
        at: u64::try_from(letter.created_at.as_micros()).unwrap_or(0),
        id: letter.id.as_u128(),
    });
    Ok(Page { items, next })
}

/// A session that never had a lease is only a name.
const SESSION_VIEWS: &str = "
    SELECT worker, lapses_at, renewals,
        (SELECT count(*) FROM jobs WHERE lease_session = sessions.id)
    FROM sessions WHERE lapses_at > 'epoch' ORDER BY worker COLLATE \"C\"";

/// Every session, with how much it holds.
pub(super) async fn read_sessions(client: &ClientWrapper) -> PgResult<Vec<SessionView>> {
    let rows = run_one(client, Ask::new(SESSION_VIEWS)).await?;
    let session = |row: &Row| {
        let (worker, lapses_at) = (text_of(row, 0)?, time_of(row, 1)?);
        Ok(SessionView { worker, lapses_at, renewals: number(row, 2)?, held: number(row, 3)? })
    };
    rows.iter().map(session).collect()
}

/// The first of each group stands first in the index `jobs_ready`.
const OLDEST_READY: &str = "
    SELECT queue, min(since) FROM (
        SELECT job_groups.queue AS queue,
            (SELECT updated_at FROM jobs
             WHERE group_id = job_groups.id AND (state = 'queued' OR state = 'interrupted')
             ORDER BY rank LIMIT 1) AS since
        FROM job_groups) AS waiting
    WHERE since IS NOT NULL GROUP BY queue ORDER BY queue COLLATE \"C\"";

/// For each queue the job that is next in one of its groups and waits longest.
pub(super) async fn read_oldest_ready(client: &ClientWrapper) -> PgResult<Vec<OldestReady>> {
    let rows = run_one(client, Ask::new(OLDEST_READY)).await?;
    let oldest = |row: &Row| Ok(OldestReady { queue: text_of(row, 0)?, since: time_of(row, 1)? });
    rows.iter().map(oldest).collect()
}

const FOLLOW_UPS: &str = "SELECT id, tenant, what FROM follow_ups ORDER BY id LIMIT $1";

/// What follows for other jobs and is not carried out yet, oldest first.
pub(super) async fn read_follow_ups(
    client: &ClientWrapper,
    max: usize,
) -> PgResult<Vec<StoredFollowUp>> {
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = run_one(client, Ask::new(FOLLOW_UPS).with(limit)).await?;
    let follow_up = |row: &Row| {
        let (tenant, follow_up) = (text_of(row, 1)?, json_of(row, 2)?);
        Ok(StoredFollowUp { id: row.try_get(0)?, tenant, follow_up })
    };
    rows.iter().map(follow_up).collect()
}

const OPEN_CHILDREN: &str = "
    SELECT jobs.id FROM children JOIN jobs ON jobs.id = children.id
    WHERE children.parent = $1 AND jobs.tenant = $2
        AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
    ORDER BY children.id LIMIT $3";

/// Children of a job that are not at their end, oldest first.
pub(super) async fn read_open_children(
    client: &ClientWrapper,
    tenant: &TenantId,
    parent: JobId,
    max: usize,
) -> PgResult<Vec<JobId>> {
    let ask = Ask::new(OPEN_CHILDREN)
        .with(Uuid(parent.as_u128()))
        .with(tenant.as_str().to_owned())
        .with(i64::try_from(max).unwrap_or(i64::MAX));
    run_one(client, ask).await?.iter().map(|row| id_of(row, 0)).collect()
}

const PAYLOAD: &str = "SELECT payload FROM jobs WHERE id = $1";

/// The payload of a job, byte for byte.
pub(super) async fn read_payload(client: &ClientWrapper, id: JobId) -> PgResult<Option<String>> {
    let rows = run_one(client, Ask::new(PAYLOAD).with(Uuid(id.as_u128()))).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}
