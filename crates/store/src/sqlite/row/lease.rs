//! Leases: what workers hold, without the rest of the rows.

use rusqlite::{Connection, Row};
use windlass_kernel::{Job, JobId, TenantId, ids::ClaimId, job::Rank};

use super::column::{text_of, u128_of, unreadable};
use crate::{packed::LeaseBytes, sqlite::SqlResult};

/// What a claim or a renewal has to know of a job that is held.
pub(crate) struct HeldRow {
    pub(crate) id: JobId,
    pub(crate) rank: Rank,
    pub(crate) claim_id: Option<ClaimId>,
    pub(crate) alone: bool,
    pub(crate) to_be_cancelled: bool,
}

impl HeldRow {
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            id: job.id,
            rank: job.spec.rank(),
            claim_id: job.claim_id,
            alone: job.lease.as_ref().is_some_and(|lease| lease.alone),
            to_be_cancelled: job.cancel.is_some(),
        }
    }
}

/// Served by the index `jobs_leased`.
const HELD: &str = "
    SELECT id, rank, lease, rest ->> '$.cancel' IS NOT NULL FROM jobs WHERE lease_session = ?1";

/// What a session holds, without the rest of the rows: a worker may hold many.
pub(crate) fn load_held(connection: &Connection, session: i64) -> SqlResult<Vec<HeldRow>> {
    let mut statement = connection.prepare_cached(HELD)?;
    let rows = statement.query_map([session], |row| {
        let lease = lease_of(row, 2)?;
        Ok(HeldRow {
            id: JobId::from_u128(u128_of(row, 0)?),
            rank: Rank(row.get(1)?),
            claim_id: lease.claim_id,
            alone: lease.held.is_some_and(|held| held.alone),
            to_be_cancelled: row.get(3)?,
        })
    })?;
    rows.collect()
}

/// Served by the index `jobs_leased`.
const LEASED_BEFORE: &str = "
    SELECT tenant, id, version FROM jobs WHERE lease_session IS NOT NULL AND epoch < ?1 LIMIT 500";

/// Some jobs that are held under an epoch before this one.
pub(crate) fn load_leased_before(
    connection: &Connection,
    epoch: u64,
) -> SqlResult<Vec<(TenantId, JobId, u64)>> {
    let mut statement = connection.prepare_cached(LEASED_BEFORE)?;
    let rows = statement.query_map([epoch], |row| {
        Ok((text_of(row, 0)?, JobId::from_u128(u128_of(row, 1)?), row.get(2)?))
    })?;
    rows.collect()
}

pub(crate) fn lease_of(row: &Row<'_>, column: usize) -> SqlResult<LeaseBytes> {
    let lease = LeaseBytes::parse(row.get_ref(column)?.as_blob_or_null()?);
    lease.ok_or_else(|| unreadable(column, "it is no lease".to_owned()))
}
