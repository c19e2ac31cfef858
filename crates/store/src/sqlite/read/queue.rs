//! Reads queues: how many jobs they have, and which waits longest.

use rusqlite::Connection;

use crate::{
    read::{OldestReady, Scope},
    sqlite::{
        SqlResult,
        row::column::{text_of, time_of},
    },
};

const COUNTS: &str = "
    SELECT queue, state, sum(jobs) FROM (
        SELECT group_id, state, count(*) AS jobs FROM jobs
        WHERE ?1 IS NULL OR tenant = ?1 GROUP BY group_id, state)
    JOIN job_groups ON job_groups.id = group_id
    GROUP BY queue, state";

/// How many jobs there are, by queue and state.
pub(crate) fn read_counts(
    connection: &Connection,
    scope: &Scope,
) -> SqlResult<Vec<(String, String, u64)>> {
    let mut statement = connection.prepare_cached(COUNTS)?;
    let count = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let rows = statement.query_map([scope.word()], count)?;
    rows.collect()
}

/// Served by the index `jobs_ready`: it looks at all that is ready, and at nothing else. Who is next need not be who
/// waits longest: the one is found by rank, the other by time.
const OLDEST_READY: &str = "
    SELECT tenant, queue, min(since) FROM (
        SELECT group_id, min(updated_at) AS since FROM jobs INDEXED BY jobs_ready
        WHERE (state = 'queued' OR state = 'interrupted') AND (?1 IS NULL OR tenant = ?1)
        GROUP BY group_id)
    JOIN job_groups ON job_groups.id = group_id GROUP BY tenant, queue ORDER BY tenant, queue";

/// For each queue of a tenant since when the job has been ready that waits longest.
pub(crate) fn read_oldest_ready(
    connection: &Connection,
    scope: &Scope,
) -> SqlResult<Vec<OldestReady>> {
    let mut statement = connection.prepare_cached(OLDEST_READY)?;
    let rows = statement.query_map([scope.word()], |row| {
        let (tenant, queue) = (text_of(row, 0)?, text_of(row, 1)?);
        Ok(OldestReady { tenant, queue, since: time_of(row, 2)? })
    })?;
    rows.collect()
}
