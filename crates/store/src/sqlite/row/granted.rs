//! Claims that were granted something, for as long as they are remembered.
//!
//! A row is written with each claim that gets jobs, so it is narrow, and stands in a table that grows at its end and is
//! forgotten from its beginning: a commit that adds rows deletes twice as many that no longer count.

use rusqlite::{Connection, OptionalExtension as _, Row, params};
use windlass_kernel::{Timestamp, ids::ClaimId, ops::Claim};

use super::column;
use crate::sqlite::SqlResult;

/// How many are forgotten in one step of retention.
pub(crate) const FORGET_MAX: usize = 2_000;

/// The hour that a claim is granted in. It counts in this one and in the next: for an hour at the least.
fn hour(at: Timestamp) -> i64 {
    let hour = i64::try_from(Claim::REMEMBERED_FOR.as_micros()).expect("it is an hour");
    at.as_micros().div_euclid(hour)
}

const NEWEST: &str = "
    SELECT max(
        coalesce((SELECT id FROM claims WHERE hour = last.hour ORDER BY id DESC LIMIT 1), zeroblob(16)),
        coalesce((SELECT id FROM claims WHERE hour = last.hour - 1 ORDER BY id DESC LIMIT 1), zeroblob(16)))
    FROM (SELECT max(hour) AS hour FROM claims) AS last";

/// The greatest id of those that can still count.
pub(crate) fn load_newest(connection: &Connection) -> SqlResult<ClaimId> {
    let newest = connection.query_row(NEWEST, [], |row| column::u128_of(row, 0))?;
    Ok(ClaimId::from_u128(newest))
}

const IS_KNOWN: &str = "SELECT count(*) FROM claims WHERE hour IN (?1, ?1 - 1) AND id = ?2";

/// Is the claim remembered?
pub(crate) fn is_known(connection: &Connection, claim: ClaimId, now: Timestamp) -> SqlResult<bool> {
    let mut known = connection.prepare_cached(IS_KNOWN)?;
    known.query_row(params![hour(now), claim.as_u128().to_be_bytes()], |row| row.get(0))
}

const SAVE: &str = "INSERT INTO claims (hour, id) VALUES (?1, ?2)";

/// Remembers these claims, and forgets some that no longer count.
pub(crate) fn save(connection: &Connection, claims: &[ClaimId], now: Timestamp) -> SqlResult<()> {
    if !claims.is_empty() {
        forget(connection, 2 * claims.len(), now)?;
    }
    for claim in claims {
        let row = params![hour(now), claim.as_u128().to_be_bytes()];
        connection.prepare_cached(SAVE)?.execute(row)?;
    }
    Ok(())
}

const FIRST: &str = "SELECT min(hour) FROM claims";
const LAST_OF_STEP: &str = "
    SELECT hour, id FROM claims WHERE hour < ?1 - 1 ORDER BY hour, id LIMIT 1 OFFSET ?2";
const FORGET_UNTIL: &str = "DELETE FROM claims WHERE (hour, id) <= (?1, ?2)";
const FORGET_ALL: &str = "DELETE FROM claims WHERE hour < ?1 - 1";

/// Forgets those that no longer count, so many at the most, and says how many they were.
pub(crate) fn forget(connection: &Connection, max: usize, now: Timestamp) -> SqlResult<usize> {
    let first: Option<i64> = connection.prepare_cached(FIRST)?.query_row([], |row| row.get(0))?;
    if first.is_none_or(|first| first >= hour(now) - 1) {
        return Ok(0);
    }
    let mut last = connection.prepare_cached(LAST_OF_STEP)?;
    let row = |row: &Row<'_>| Ok((row.get(0)?, column::u128_of(row, 1)?));
    let last: Option<(i64, u128)> =
        last.query_row(params![hour(now), max.max(1) - 1], row).optional()?;
    match last {
        Some((hour, id)) => {
            let until = params![hour, id.to_be_bytes()];
            connection.prepare_cached(FORGET_UNTIL)?.execute(until)
        }
        None => connection.prepare_cached(FORGET_ALL)?.execute([hour(now)]),
    }
}
