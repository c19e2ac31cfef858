//! Claims that were granted something, for as long as they are remembered.
//!
//! A row is written with each claim that gets jobs (by `finish`), and the first trip of a commit asks for those that it
//! names. It is also the way to the leases of a claim: so it stays while one of them lasts.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Timestamp, ops::Claim};

use crate::postgres::{
    PgResult,
    link::{
        pipeline::{Ask, run_one},
        types::Time,
    },
};

/// How many are forgotten in one step.
pub(crate) const FORGET_MAX: i64 = 5_000;

/// What another node forgets at the same time is left to it. They are found by the index `claims_at`, and what is held by
/// `jobs_leased`.
const FORGET: &str = "
    WITH gone AS (
        DELETE FROM claims WHERE id IN (
            SELECT c.id FROM claims c
            WHERE c.at < $1 AND NOT EXISTS (
                SELECT FROM jobs j
                WHERE j.lease_session IS NOT NULL AND substring(j.lease FOR 16) = uuid_send(c.id))
            ORDER BY c.at LIMIT $2 FOR UPDATE OF c SKIP LOCKED)
        RETURNING id)
    SELECT count(*) FROM gone";

/// Forgets those that no longer count, in a step of [`FORGET_MAX`] at the most, and says how many they were.
pub(crate) async fn forget(client: &ClientWrapper, now: Timestamp) -> PgResult<i64> {
    let before = Time(now.minus(Claim::REMEMBERED_FOR));
    let rows = run_one(client, Ask::new(FORGET).with(before).with(FORGET_MAX)).await?;
    Ok(rows.first().map_or(Ok(0), |row| row.try_get(0))?)
}
