//! Acts: where the log tells what people did.

use rusqlite::{Connection, params};

use super::column::{text_of, time_of};
use crate::{
    Error, log,
    read::{FeedEvent, PageFrom, Scope},
    sqlite::{SqlResult, write::write_plan::LogRow},
};

const SAVE: &str = "INSERT INTO acts (event, tenant) VALUES (?1, ?2)";

/// Notes where the acts of a log row are.
pub(crate) fn save(connection: &Connection, row: &LogRow) -> SqlResult<()> {
    if row.acts.is_empty() {
        return Ok(());
    }
    let mut save = connection.prepare_cached(SAVE)?;
    for event in &row.acts {
        save.execute(params![event, row.tenant.as_str()])?;
    }
    Ok(())
}

/// Newest first. Served by the index `acts_tenant`.
const ACTS: &str = "
    SELECT event FROM acts WHERE tenant = ?1 AND event < ?2 ORDER BY event DESC LIMIT ?3";
/// The same of every tenant. Served by the primary key.
const ACTS_OF_ALL: &str = "
    SELECT event FROM acts WHERE ?1 IS NULL AND event < ?2 ORDER BY event DESC LIMIT ?3";
const LOG_ROW: &str =
    "SELECT id, at, tenant, events FROM log WHERE id <= ?1 ORDER BY id DESC LIMIT 1";

/// What people did before an event, newest first.
pub(crate) fn read_acts(
    connection: &Connection,
    scope: &Scope,
    before: u64,
    limit: usize,
) -> SqlResult<Result<Vec<FeedEvent>, Error>> {
    let before = i64::try_from(before).unwrap_or(i64::MAX);
    let limit = i64::try_from(limit.min(PageFrom::LIMIT_MAX)).unwrap_or(i64::MAX);
    let acts = scope.word().map_or(ACTS_OF_ALL, |_| ACTS);
    let mut acts = connection.prepare_cached(acts)?;
    let acts = acts.query_map(params![scope.word(), before, limit], |row| row.get(0))?;
    let acts: Vec<u64> = acts.collect::<SqlResult<_>>()?;
    let mut log_row = connection.prepare_cached(LOG_ROW)?;
    let mut told = Vec::with_capacity(acts.len());
    for number in acts {
        let (first, at, tenant, text): (u64, _, _, String) = log_row
            .query_row([number], |row| {
                Ok((row.get(0)?, time_of(row, 1)?, text_of(row, 2)?, row.get(3)?))
            })?;
        match log::line_at(&text, number - first) {
            Ok(line) => told.push(FeedEvent { number, tenant, at, line }),
            Err(error) => return Ok(Err(error)),
        }
    }
    Ok(Ok(told))
}
