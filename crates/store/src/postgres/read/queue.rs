//! Reads queues: how many jobs they have, and which waits longest.

use std::collections::{BTreeMap, HashMap};

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{Queue, Refusal, TenantId, Timestamp};

use super::job::whose;
use crate::{
    postgres::{
        Failure, PgResult,
        link::pipeline::{Ask, run_one},
        row::column::{number, time_of},
    },
    read::{OldestReady, Scope},
};

/// By group, and not by queue: joined on the server, a list of many queues would be walked through once for each.
const COUNTS: &str = "
    SELECT group_id, state, count(*) FROM jobs
    WHERE $1::text IS NULL OR tenant = $1 GROUP BY group_id, state";

const GROUPS: &str = "SELECT id, tenant, queue FROM job_groups WHERE id = ANY($1)";

/// The tenants and the queues of these groups.
async fn groups_of(
    client: &ClientWrapper,
    groups: impl Iterator<Item = i32>,
) -> PgResult<HashMap<i32, (String, String)>> {
    let mut groups: Vec<i32> = groups.collect();
    groups.sort_unstable();
    groups.dedup();
    let rows = run_one(client, Ask::new(GROUPS).with(groups)).await?;
    let group = |row: &Row| Ok((row.try_get(0)?, (row.try_get(1)?, row.try_get(2)?)));
    rows.iter().map(group).collect()
}

/// How many jobs there are, by queue and state.
pub(crate) async fn read_counts(
    client: &ClientWrapper,
    scope: &Scope,
) -> PgResult<Vec<(String, String, u64)>> {
    let rows = run_one(client, Ask::new(COUNTS).with(whose(scope))).await?;
    let count = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?, number(row, 2)?));
    let rows: Vec<(i32, String, u64)> = rows.iter().map(count).collect::<PgResult<_>>()?;
    let groups = groups_of(client, rows.iter().map(|row| row.0)).await?;
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for (group, state, jobs) in rows {
        let group = groups.get(&group);
        let (_, queue) = group.ok_or_else(|| Failure::damaged("a job has no group"))?;
        *counts.entry((queue.clone(), state)).or_default() += jobs;
    }
    Ok(counts.into_iter().map(|((queue, state), jobs)| (queue, state, jobs)).collect())
}

/// Served by the index `jobs_ready`: it looks at all that is ready, and at nothing else. Who is next need not be who
/// waits longest: the one is found by rank, the other by time.
const OLDEST_READY: &str = "
    SELECT group_id, min(updated_at) FROM jobs
    WHERE (state = 'queued' OR state = 'interrupted') AND ($1::text IS NULL OR tenant = $1)
    GROUP BY group_id";

/// For each queue of a tenant since when the job has been ready that waits longest.
pub(crate) async fn read_oldest_ready(
    client: &ClientWrapper,
    scope: &Scope,
) -> PgResult<Vec<OldestReady>> {
    let rows = run_one(client, Ask::new(OLDEST_READY).with(whose(scope))).await?;
    let group = |row: &Row| Ok((row.try_get(0)?, time_of(row, 1)?));
    let rows: Vec<(i32, Timestamp)> = rows.iter().map(group).collect::<PgResult<_>>()?;
    let groups = groups_of(client, rows.iter().map(|row| row.0)).await?;
    let mut oldest: BTreeMap<&(String, String), Timestamp> = BTreeMap::new();
    for (group, since) in rows {
        let group = groups.get(&group);
        let group = group.ok_or_else(|| Failure::damaged("a job has no group"))?;
        let known = oldest.entry(group).or_insert(since);
        *known = since.min(*known);
    }
    let damaged = |why: Refusal| Failure::damaged(why.to_string());
    let told = |((tenant, queue), since): (&(String, String), Timestamp)| {
        let tenant = TenantId::new(tenant).map_err(damaged)?;
        Ok(OldestReady { tenant, queue: Queue::new(queue).map_err(damaged)?, since })
    };
    oldest.into_iter().map(told).collect()
}
