//! Follow-ups: what an op means for another job, until it is carried out.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;

use super::column::{json_of, text_of};
use crate::{
    commit::Changes,
    job_row::json,
    postgres::{
        PgResult,
        link::pipeline::{Ask, run_one},
    },
    read::StoredFollowUp,
};

const FOLLOW_UP: &str = "INSERT INTO follow_ups (tenant, what) VALUES ($1, $2)";

/// Locked in the order of their numbers, so that two commits cannot deadlock.
const FOLLOW_UPS_DONE: &str = "
    WITH done AS (SELECT id FROM follow_ups WHERE id = ANY($1) ORDER BY id FOR UPDATE)
    DELETE FROM follow_ups WHERE id IN (SELECT id FROM done)";

/// The statements that save what follows for other jobs, and strike off what is carried out.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    for (tenant, follow_up) in &changes.follow_ups {
        let row = Ask::new(FOLLOW_UP).with(tenant.as_str().to_owned());
        asks.push(row.with(json(follow_up)));
    }
    if !changes.follow_ups_done.is_empty() {
        asks.push(Ask::new(FOLLOW_UPS_DONE).with(changes.follow_ups_done.clone()));
    }
}

const FOLLOW_UPS: &str = "SELECT id, tenant, what FROM follow_ups ORDER BY id LIMIT $1";

/// What follows for other jobs and is not carried out yet, oldest first.
pub(crate) async fn read_follow_ups(
    client: &ClientWrapper,
    max: usize,
) -> PgResult<Vec<StoredFollowUp>> {
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let rows = run_one(client, Ask::new(FOLLOW_UPS).with(limit)).await?;
    let follow_up = |row: &Row| {
        let (tenant, follow_up) = (text_of(row, 1)?, json_of(row, 2)?);
        Ok(StoredFollowUp { id: row.try_get(0)?, tenant, follow_up })
    };
    rows.iter().map(follow_up).collect()
}
