//! Reads the history of a job: its events and its attempts.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{Event, JobId, Spec, Timestamp};

use super::job::read_job;
use crate::{
    Error,
    history_page::PageSearch,
    log,
    read::{AttemptsPage, EventsPage, Scope},
    sqlite::{
        SqlResult,
        row::{
            column::time_of,
            job::{Loaded, Place},
        },
    },
};

pub(crate) const LOG_IDS: &str = "SELECT log_id FROM job_log WHERE seq = ?1 ORDER BY log_id";

const LOG_ROW: &str = "SELECT at, events FROM log WHERE id = ?1";

/// The history of a job, in order.
pub(crate) fn read_events(
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
pub(crate) fn read_events_after(
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

const STATS: &str = "
    SELECT stats FROM outputs
    WHERE seq = (SELECT seq FROM jobs WHERE id = ?1) AND attempt = ?2";

/// Attempts of a job: what its history tells, and the figures that handlers gave.
pub(crate) fn read_attempts(
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
