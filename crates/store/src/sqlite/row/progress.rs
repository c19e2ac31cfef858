//! Progress: how far the handler of a job said it had come.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{Epoch, JobId};

use super::{column::time_of, job::Place};
use crate::{
    IdMap,
    commit::{Changes, Row},
    read::{Progress, Scope},
    sqlite::SqlResult,
};

const SAVE_PROGRESS: &str = "
    INSERT INTO progress (seq, epoch, at, value) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT DO UPDATE SET epoch = excluded.epoch, at = excluded.at, value = excluded.value";

/// Writes how far handlers said they had come.
pub(crate) fn save(
    connection: &Connection,
    changes: &Changes,
    rows: &IdMap<Row<Place>>,
) -> SqlResult<()> {
    for (id, progress) in &changes.progress {
        let windlass_kernel::Progress { epoch, at, value } = progress;
        let row = params![rows[id].place.seq, epoch.get(), at.as_micros(), value.as_str()];
        connection.prepare_cached(SAVE_PROGRESS)?.execute(row)?;
    }
    Ok(())
}

const PROGRESS: &str = "
    SELECT epoch, at, value FROM progress
    WHERE seq = (SELECT seq FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2))";

/// How far the handler of a job said it had come.
pub(crate) fn read_progress(
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
