//! Notes: where the log tells what is not of a job, by what it is about.

use rusqlite::{Connection, params};
use windlass_kernel::{About, TenantId, Timestamp};

use super::column::time_of;
use crate::{
    Error, log,
    read::FeedEvent,
    sqlite::{SqlResult, write::write_plan::LogRow},
};

const SAVE: &str = "INSERT INTO notes (event, tenant, about, name, at) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Notes where the notes of a log row are.
pub(crate) fn save(connection: &Connection, row: &LogRow, now: Timestamp) -> SqlResult<()> {
    if row.noted.is_empty() {
        return Ok(());
    }
    let mut save = connection.prepare_cached(SAVE)?;
    for (event, about) in &row.noted {
        let tenant = row.tenant.as_str();
        save.execute(params![event, tenant, about.kind(), about.name(), now.as_micros()])?;
    }
    Ok(())
}

/// Newest first. Served by the index `notes_about`.
const EVENTS: &str = "
    SELECT event FROM notes
    WHERE tenant = ?1 AND about = ?2 AND name = ?3 AND event < ?4 ORDER BY event DESC LIMIT ?5";
const LOG_ROW: &str = "SELECT id, at, events FROM log WHERE id <= ?1 ORDER BY id DESC LIMIT 1";

/// What was noted about something before an event, newest first.
pub(crate) fn read_notes(
    connection: &Connection,
    tenant: &TenantId,
    about: &About,
    before: u64,
    limit: usize,
) -> SqlResult<Result<Vec<FeedEvent>, Error>> {
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut events = connection.prepare_cached(EVENTS)?;
    let wanted = params![tenant.as_str(), about.kind(), about.name(), before, limit];
    let events: Vec<u64> = events.query_map(wanted, |row| row.get(0))?.collect::<SqlResult<_>>()?;
    let mut log_row = connection.prepare_cached(LOG_ROW)?;
    let mut notes = Vec::with_capacity(events.len());
    for number in events {
        let (first, at, text): (u64, _, String) =
            log_row.query_row([number], |row| Ok((row.get(0)?, time_of(row, 1)?, row.get(2)?)))?;
        match log::line_at(&text, number - first) {
            Ok(line) => notes.push(FeedEvent { number, tenant: tenant.clone(), at, line }),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(notes))
}
