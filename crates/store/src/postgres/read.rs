//! Reads by noun. Nothing here changes anything.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{
    Approval, DeadLetter, DlqId, Epoch, Event, Job, JobId, Queue, Refusal, Spec, TaskId, TenantId,
    Timestamp, letter::ApprovalStep,
};

use super::{
    Failure, PgResult,
    load::{
        Loaded, id_of, job_columns, job_of, job_tables, json_of, load_letter, number, number_32,
        text_of, time_of,
    },
    pipeline::{Ask, run_for_row, run_one},
    types::{Uuid, signed},
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

const JOB: &str = concat!("SELECT ", job_columns!(), job_tables!(), "WHERE j.id = $1");

/// The job of this id, with the lease that its session gives it.
pub(super) async fn read_job(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Loaded>> {
    let rows = run_one(client, Ask::new(JOB).with(Uuid(id.as_u128()))).await?;
    let loaded = rows.first().map(job_of).transpose()?;
    Ok(loaded.filter(|loaded| scope.admits(&loaded.job.spec.tenant)))
}

/// The tenant of a scope as statements compare it: null admits all.
pub(super) fn whose(scope: &Scope) -> Option<String> {
    scope.word().map(str::to_owned)
}

/// The newest of a task, tenant by tenant. Served by the index `jobs_task`.
const OF_TASK: &str = "
    SELECT (SELECT id FROM jobs WHERE tenant = t.tenant AND task_id = $2 ORDER BY attempt DESC LIMIT 1)
    FROM (SELECT DISTINCT tenant FROM job_groups WHERE $1::text IS NULL OR tenant = $1) AS t";

/// The job of a task with the highest attempt.
pub(super) async fn read_newest_of_task(
    client: &ClientWrapper,
    scope: &Scope,
    task: &TaskId,
) -> PgResult<Option<Job>> {
    let ask = Ask::new(OF_TASK).with(whose(scope)).with(task.as_str().to_owned());
    let mut ids: Vec<JobId> = Vec::new();
    for row in run_one(client, ask).await? {
        ids.extend(row.try_get::<_, Option<Uuid>>(0)?.map(|id| JobId::from_u128(id.0)));
    }
    // A job that named no task is the first of its own.
    ids.extend(task.as_str().parse::<JobId>().ok());
    let mut newest: Option<Job> = None;
    for id in ids {
        let job = read_job(client, scope, id).await?.map(|loaded| loaded.job);
        let job = job.filter(|job| job.spec.task_id == *task);
        newest = newest.into_iter().chain(job).max_by_key(|job| (job.attempt, job.id));
    }
    Ok(newest)
}

/// In the order of its chain: each row that speaks of it is later than the one before.
const LOG_ROWS: &str = "
    SELECT at, events FROM log
    WHERE seq = ANY(ARRAY(SELECT seq FROM job_log WHERE id = $1) || $2::bigint[])";

/// The history of a job, in order.
pub(super) async fn read_events(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Vec<Event>> {
    let found = read_job(client, scope, id).await?;
    let Some(Loaded { job, place }) = found else { return Ok(Vec::new()) };
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

const LOG_IDS: &str = "SELECT seq FROM job_log WHERE id = $1";
const LOG_AND_FEED: &str = "
    SELECT log.seq, log.at, feed.first, log.events FROM log JOIN feed ON feed.seq = log.seq
    WHERE log.seq = ANY($1::bigint[])";

/// A part of the history of a job.
pub(super) async fn read_events_after(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
    after: u64,
    limit: usize,
) -> PgResult<Option<EventsPage>> {
    let found = read_job(client, scope, id).await?;
    let Some(Loaded { job, place }) = found else { return Ok(None) };
    let mut rows: Vec<u64> = place.history.log_ids().collect();
    for row in run_one(client, Ask::new(LOG_IDS).with(Uuid(id.as_u128()))).await? {
        rows.push(number(&row, 0)?);
    }
    let mut search = PageSearch::new(id, job.version, rows, after, limit);
    loop {
        let next: Vec<i64> = search.next().into_iter().map(signed).collect();
        if next.is_empty() {
            return search.finish(&job.spec).map(Some).map_err(Failure::Known);
        }
        for row in run_one(client, Ask::new(LOG_AND_FEED).with(next)).await? {
            let (seq, at, first) = (number(&row, 0)?, time_of(&row, 1)?, number(&row, 2)?);
            search.add(seq, at, first, row.try_get(3)?).map_err(Failure::Known)?;
        }
    }
}

const LAST_OUTPUT: &str = "
    SELECT o.attempt, o.result, o.remaining, o.stats FROM outputs o JOIN jobs j ON j.id = o.id
    WHERE o.id = $1 AND ($2::text IS NULL OR j.tenant = $2) ORDER BY o.attempt DESC LIMIT 1";

/// What the handler of the last attempt gave back that gave back anything.
pub(super) async fn read_last_output(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Output>> {
    let ask = Ask::new(LAST_OUTPUT).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    let output = |row: &Row| {
        Ok(Output {
            attempt: number_32(row, 0)?,
            result: row.try_get(1)?,
            remaining: row.try_get(2)?,
            stats: row.try_get(3)?,
        })
    };
    rows.first().map(output).transpose()
}

const PROGRESS: &str = "
    SELECT p.epoch, p.at, p.value FROM progress p JOIN jobs j ON j.id = p.id
    WHERE p.id = $1 AND ($2::text IS NULL OR j.tenant = $2)";

/// How far the handler of a job said it had come.
pub(super) async fn read_progress(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Progress>> {
    let ask = Ask::new(PROGRESS).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    let progress = |row: &Row| {
        let epoch = Epoch::new(number(row, 0)?);
        Ok(Progress { epoch, at: time_of(row, 1)?, value: row.try_get(2)? })
    };
    rows.first().map(progress).transpose()
}

/// Figures of attempts, as far as those before them leave room.
const STATS: &str = "
    SELECT attempt, stats
    FROM (SELECT attempt, stats, sum(octet_length(stats)) OVER (ORDER BY attempt) AS bytes
        FROM outputs WHERE id = $1 AND attempt > $2 AND stats IS NOT NULL) AS o
    WHERE bytes - octet_length(stats) <= $3";

/// Attempts of a job: what its history tells, and the figures that handlers gave.
pub(super) async fn read_attempts(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
    (after, limit): (u32, usize),
) -> PgResult<AttemptsPage> {
    let attempts = windlass_kernel::attempts(&read_events(client, scope, id).await?);
    let mut stats: HashMap<u32, String> = HashMap::new();
    if !attempts.is_empty() {
        let ask = Ask::new(STATS).with(Uuid(id.as_u128()));
        let ask = ask.with(i32::try_from(after).unwrap_or(i32::MAX));
        for row in run_one(client, ask.with(AttemptsPage::BYTES_MAX as i64)).await? {
            stats.insert(number_32(&row, 0)?, row.try_get(1)?);
        }
    }
    AttemptsPage::fill(attempts, after, limit, |attempt| Ok(stats.remove(&attempt)))
}

/// A dead letter as it stands.
pub(super) async fn read_letter(
    client: &ClientWrapper,
    scope: &Scope,
    id: DlqId,
) -> PgResult<Option<DeadLetter>> {
    let letter = load_letter(client, id).await?;
    Ok(letter.filter(|letter| scope.admits(&letter.tenant)))
}

const APPROVALS: &str = "
    SELECT a.principal, a.step, a.reason, a.at FROM approvals a JOIN dlq_items d ON d.id = a.dlq_id
    WHERE a.dlq_id = $1 AND ($2::text IS NULL OR d.tenant = $2) ORDER BY a.at, a.step DESC";

/// What people said about a dead letter, in order.
pub(super) async fn read_approvals(
    client: &ClientWrapper,
    scope: &Scope,
    dlq_id: DlqId,
) -> PgResult<Vec<Approval>> {
    let ask = Ask::new(APPROVALS).with(Uuid(dlq_id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
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

/// The first event that is still told.
async fn read_feed_from(client: &ClientWrapper) -> PgResult<u64> {
    number(&run_for_row(client, Ask::new(FEED_FROM), "meta has no feed_from").await?, 0)
}

/// Which rows come next, whose they are and how large. Served by the primary keys of the feed and of the log.
const FEED: &str = "
    SELECT f.first, f.at, log.tenant, f.count, f.seq, octet_length(log.events)::bigint
    FROM (SELECT first, at, seq, count FROM feed
          WHERE first >= coalesce((SELECT max(first) FROM feed WHERE first <= $1::bigint + 1), 0)
          ORDER BY first LIMIT $2) AS f
    JOIN log ON log.seq = f.seq ORDER BY f.first";

const FEED_LINES: &str = "SELECT seq, events FROM log WHERE seq = ANY($1::bigint[])";

/// A row of the log, as the feed tells it.
struct FeedRow {
    first: u64,
    count: u64,
    at: Timestamp,
    tenant: TenantId,
    seq: i64,
    bytes: usize,
}

impl FeedRow {
    fn of(row: &Row) -> PgResult<Self> {
        Ok(Self {
            first: number(row, 0)?,
            at: time_of(row, 1)?,
            tenant: text_of(row, 2)?,
            count: u64::from(number_32(row, 3)?),
            seq: row.try_get(4)?,
            bytes: usize::try_from(number(row, 5)?).unwrap_or(usize::MAX),
        })
    }
}

/// Events after a number, in the order of the store. Numbers are given one commit after the other, so one
/// that is there will never have another before it.
pub(super) async fn read_feed(
    client: &ClientWrapper,
    scope: &Scope,
    after: u64,
    limit: u32,
) -> PgResult<Feed> {
    let mut filler = FeedFiller::new(after, limit);
    if !Feed::is_beyond(after) {
        fill_feed(client, scope, after, limit, &mut filler).await?;
    }
    // Looked at last: what retention took in the meantime is noticed.
    let from = read_feed_from(client).await?;
    if after.saturating_add(1) < from {
        return Err(Failure::Known(Error::FeedGone { from }));
    }
    Ok(filler.feed)
}

async fn fill_feed(
    client: &ClientWrapper,
    scope: &Scope,
    after: u64,
    limit: u32,
    filler: &mut FeedFiller,
) -> PgResult<()> {
    let most = i64::from(limit.max(1));
    let ask = Ask::new(FEED).with(signed(after)).with(most);
    let rows = run_one(client, ask).await?;
    let mut rows = rows.iter().map(FeedRow::of).collect::<PgResult<Vec<_>>>()?;
    // No more than are needed are fetched: of the first row some may have been told before.
    let (mut events, mut bytes, mut wanted) = (0, 0, Vec::new());
    let mut fits = |row: &FeedRow| {
        let is_wanted = events < u64::from(limit) && bytes < Feed::BYTES_MAX;
        if is_wanted && scope.admits(&row.tenant) {
            events += (row.first + row.count - 1).saturating_sub(after).min(row.count);
            bytes += row.bytes;
            wanted.push(row.seq);
        }
        is_wanted
    };
    let kept = rows.iter().map_while(|row| Some(row).filter(|row| fits(row)).map(drop)).count();
    rows.truncate(kept);
    let lines = run_one(client, Ask::new(FEED_LINES).with(wanted)).await?;
    let mut texts: HashMap<i64, &str> = HashMap::new();
    for row in &lines {
        texts.insert(row.try_get(0)?, row.try_get(1)?);
    }
    for row in &rows {
        let text = match scope.admits(&row.tenant) {
            true => texts.get(&row.seq).copied(),
            false => Some("[]"),
        };
        // Retention took it meanwhile, and says so.
        let Some(text) = text else { return Ok(()) };
        let lines = log::lines(text).map_err(Failure::Known)?;
        if filler.add(row.first, row.count, row.at, &row.tenant, &lines) {
            return Ok(());
        }
    }
    Ok(())
}

/// Served by the primary key of the feed.
const FEED_END: &str = "SELECT first + count - 1 FROM feed ORDER BY first DESC LIMIT 1";

/// The number of the newest event.
pub(super) async fn read_feed_end(client: &ClientWrapper) -> PgResult<u64> {
    let newest = run_one(client, Ask::new(FEED_END)).await?;
    let newest = newest.first().map(|row| number(row, 0)).transpose()?.unwrap_or(0);
    let from = read_feed_from(client).await?;
    Ok(newest.max(from.saturating_sub(1)))
}

/// By group, and not by queue: joined on the server, a list of many queues would be walked through once for each.
const COUNTS: &str = "
    SELECT group_id, state, count(*) FROM jobs
    WHERE $1::text IS NULL OR tenant = $1 GROUP BY group_id, state";

const GROUPS: &str = "SELECT id, tenant, queue FROM job_groups WHERE id = ANY($1)";

/// The tenants and the queues of these groups.
async fn groups_of(
    client: &ClientWrapper,
    groups: impl Iterator<Item = i32>,
) -> PgResult<HashMap<i32, (String, String)>> {
    let mut groups: Vec<i32> = groups.collect();
    groups.sort_unstable();
    groups.dedup();
    let rows = run_one(client, Ask::new(GROUPS).with(groups)).await?;
    let group = |row: &Row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)));
    rows.iter().map(group).collect()
}

/// How many jobs there are, by queue and state.
pub(super) async fn read_counts(
    client: &ClientWrapper,
    scope: &Scope,
) -> PgResult<Vec<(String, String, u64)>> {
    let rows = run_one(client, Ask::new(COUNTS).with(whose(scope))).await?;
    let count = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?, number(row, 2)?));
    let rows: Vec<(i32, String, u64)> = rows.iter().map(count).collect::<PgResult<_>>()?;
    let groups = groups_of(client, rows.iter().map(|row| row.0)).await?;
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (group, state, jobs) in rows {
        let group = groups.get(&group);
        let (_, queue) = group.ok_or_else(|| Failure::damaged("a job has no group"))?;
        *counts.entry((queue.clone(), state)).or_default() += jobs;
    }
    Ok(counts.into_iter().map(|((queue, state), jobs)| (queue, state, jobs)).collect())
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

/// Served by the index `jobs_ready`: it looks at all that is ready, and at nothing else. Who is next need not be who
/// waits longest: the one is found by rank, the other by time.
const OLDEST_READY: &str = "
    SELECT group_id, min(updated_at) FROM jobs
    WHERE (state = 'queued' OR state = 'interrupted') AND ($1::text IS NULL OR tenant = $1)
    GROUP BY group_id";

/// For each queue of a tenant since when the job has been ready that waits longest.
pub(super) async fn read_oldest_ready(
    client: &ClientWrapper,
    scope: &Scope,
) -> PgResult<Vec<OldestReady>> {
    let rows = run_one(client, Ask::new(OLDEST_READY).with(whose(scope))).await?;
    let group = |row: &Row| Ok((row.try_get(0)?, time_of(row, 1)?));
    let rows: Vec<(i32, Timestamp)> = rows.iter().map(group).collect::<PgResult<_>>()?;
    let groups = groups_of(client, rows.iter().map(|row| row.0)).await?;
    let mut oldest: BTreeMap<&(String, String), Timestamp> = BTreeMap::new();
    for (group, since) in rows {
        let group = groups.get(&group);
        let group = group.ok_or_else(|| Failure::damaged("a job has no group"))?;
        let known = oldest.entry(group).or_insert(since);
        *known = since.min(*known);
    }
    let damaged = |why: Refusal| Failure::damaged(why.to_string());
    let told = |((tenant, queue), since): (&(String, String), Timestamp)| {
        let tenant = TenantId::new(tenant).map_err(damaged)?;
        Ok(OldestReady { tenant, queue: Queue::new(queue).map_err(damaged)?, since })
    };
    oldest.into_iter().map(told).collect()
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

/// Each child is looked up by its id. As a plain join, the planner may walk through all jobs of the store in the order of
/// their ids and ask for each whether it is a child: it did so once it had seen that most jobs are children of one parent.
/// A subquery with a limit or an offset is not merged with what is around it.
const OPEN_CHILDREN: &str = "
    SELECT child.id
    FROM (SELECT id FROM children WHERE parent = $1 AND id >= $4 ORDER BY id OFFSET 0) AS child
    CROSS JOIN LATERAL (
        SELECT FROM jobs
        WHERE jobs.id = child.id AND jobs.tenant = $2
            AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
        LIMIT 1) AS open
    ORDER BY child.id LIMIT $3";

/// Children of a job that are not at their end, oldest first.
pub(super) async fn read_open_children(
    client: &ClientWrapper,
    tenant: &TenantId,
    parent: JobId,
    after: Option<JobId>,
    max: usize,
) -> PgResult<Vec<JobId>> {
    let from = after.map_or(0, |id| id.as_u128().saturating_add(1));
    let ask = Ask::new(OPEN_CHILDREN)
        .with(Uuid(parent.as_u128()))
        .with(tenant.as_str().to_owned())
        .with(i64::try_from(max).unwrap_or(i64::MAX))
        .with(Uuid(from));
    run_one(client, ask).await?.iter().map(|row| id_of(row, 0)).collect()
}

const PAYLOAD: &str = "
    SELECT payload FROM jobs WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)";

/// The payload of a job, byte for byte.
pub(super) async fn read_payload(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<String>> {
    let ask = Ask::new(PAYLOAD).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}
