//! Verify: a job's history against its chain of hashes.

use rusqlite::{Connection, OptionalExtension as _};
use windlass_kernel::JobId;

use super::{history::LOG_IDS, job::read_job};
use crate::{
    check::{lines_of, verify},
    read::{Scope, Verified},
    sqlite::{
        SqlResult,
        row::{column::time_of, job::Loaded},
    },
};

const TOLD: &str = "SELECT tenant, at, events FROM log WHERE id = ?1";

/// What the chain of a job says. A log row that is not there is a hole in its history, and no error.
pub(crate) fn read_verified(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<Verified>> {
    let found = read_job(connection, scope, id)?;
    let Some(Loaded { job, place }) = found else { return Ok(None) };
    let mut ids: Vec<u64> = connection
        .prepare_cached(LOG_IDS)?
        .query_map([place.seq], |row| row.get(0))?
        .collect::<SqlResult<_>>()?;
    ids.extend(place.history.log_ids());
    let mut told = connection.prepare_cached(TOLD)?;
    let mut lines = Vec::new();
    for log_id in ids {
        let row = |row: &rusqlite::Row<'_>| {
            let (tenant, events): (String, String) = (row.get(0)?, row.get(2)?);
            Ok(lines_of((log_id, tenant, time_of(row, 1)?, &events), id))
        };
        lines.extend(told.query_row([log_id], row).optional()?.unwrap_or_default());
    }
    Ok(Some(verify(&job, place.history.chain(), &lines)))
}
