//! Outputs: what handlers gave back, one row an attempt.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::JobId;

use super::job::Place;
use crate::{
    IdMap,
    commit::{Changes, Row},
    read::{Output, Scope},
    sqlite::{SqlResult, read::job::read_job},
};

const SAVE_OUTPUT: &str = "
    INSERT INTO outputs (seq, attempt, result, remaining, stats) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT DO UPDATE SET result = excluded.result, remaining = excluded.remaining,
        stats = excluded.stats";

/// Writes what handlers gave back.
pub(crate) fn save(
    connection: &Connection,
    changes: &Changes,
    rows: &IdMap<Row<Place>>,
) -> SqlResult<()> {
    let text = |payload: &Option<windlass_kernel::Payload>| {
        payload.as_ref().map(|payload| payload.as_str().to_owned())
    };
    for output in &changes.outputs {
        connection.prepare_cached(SAVE_OUTPUT)?.execute(params![
            rows[&output.job_id].place.seq,
            output.attempt,
            text(&output.result),
            text(&output.remaining),
            text(&output.stats),
        ])?;
    }
    Ok(())
}

const LAST_OUTPUT: &str = "
    SELECT attempt, result, remaining, stats FROM outputs WHERE seq = ?1
    ORDER BY attempt DESC LIMIT 1";

/// What the handler of the last attempt gave back that gave back anything.
pub(crate) fn read_last_output(
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
