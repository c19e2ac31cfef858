//! Follow-ups: what an op means for another job, until it is carried out.

use rusqlite::{Connection, params};

use super::column::{json_of, text_of};
use crate::{commit::Changes, job_row::json, read::StoredFollowUp, sqlite::SqlResult};

const FOLLOW_UP: &str = "INSERT INTO follow_ups (tenant, what) VALUES (?1, ?2)";
const FOLLOW_UP_DONE: &str = "DELETE FROM follow_ups WHERE id = ?1";

/// Writes what follows for other jobs, and strikes off what is carried out.
pub(crate) fn save(connection: &Connection, changes: &Changes) -> SqlResult<()> {
    for (tenant, follow_up) in &changes.follow_ups {
        let row = params![tenant.as_str(), json(follow_up)];
        connection.prepare_cached(FOLLOW_UP)?.execute(row)?;
    }
    for id in &changes.follow_ups_done {
        connection.prepare_cached(FOLLOW_UP_DONE)?.execute([id])?;
    }
    Ok(())
}

const FOLLOW_UPS: &str = "SELECT id, tenant, what FROM follow_ups ORDER BY id LIMIT ?1";

/// What follows for other jobs and is not carried out yet, oldest first.
pub(crate) fn read_follow_ups(
    connection: &Connection,
    max: usize,
) -> SqlResult<Vec<StoredFollowUp>> {
    let mut statement = connection.prepare_cached(FOLLOW_UPS)?;
    let rows = statement.query_map([i64::try_from(max).unwrap_or(i64::MAX)], |row| {
        let (tenant, follow_up) = (text_of(row, 1)?, json_of(row, 2)?);
        Ok(StoredFollowUp { id: row.get(0)?, tenant, follow_up })
    })?;
    rows.collect()
}
