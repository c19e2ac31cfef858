//! Reads the history of a job: its events and its attempts.

use std::{collections::HashMap, sync::Arc};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Event, JobId, Spec, Timestamp};

use super::job::read_job;
use crate::{
    history_page::PageSearch,
    log,
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Uuid, signed},
        },
        row::{
            column::{number, number_32, time_of},
            job::Loaded,
        },
    },
    read::{AttemptsPage, EventsPage, Scope},
};

/// In the order of its chain: each row that speaks of it is later than the one before.
const LOG_ROWS: &str = "
    SELECT at, events FROM log
    WHERE seq = ANY(ARRAY(SELECT seq FROM job_log WHERE id = $1) || $2::bigint[])";

/// The history of a job, in order.
pub(crate) async fn read_events(
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
    // Events that were written after the job was read are not part of its history as it was read.
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
pub(crate) async fn read_events_after(
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

/// Figures of attempts, as far as those before them leave room.
const STATS: &str = "
    SELECT attempt, stats
    FROM (SELECT attempt, stats, sum(octet_length(stats)) OVER (ORDER BY attempt) AS bytes
        FROM outputs WHERE id = $1 AND attempt > $2 AND stats IS NOT NULL) AS o
    WHERE bytes - octet_length(stats) <= $3";

/// Attempts of a job: what its history tells, and the figures that handlers gave.
pub(crate) async fn read_attempts(
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
