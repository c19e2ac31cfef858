//! Verify: a job's history against its chain of hashes.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::JobId;

use super::job::read_job;
use crate::{
    check::{in_order, lines_of, verify},
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Uuid, signed},
        },
        row::{
            column::{number, time_of},
            job::Loaded,
        },
    },
    read::{Scope, Verified},
};

const TOLD: &str = "
    SELECT seq, tenant, at, events FROM log
    WHERE seq = ANY(ARRAY(SELECT seq FROM job_log WHERE id = $1) || $2::bigint[])";

/// What the chain of a job says. A log row that is not there is a hole in its history, and no error.
///
/// A job that moves on between the two looks is looked at again; the deadline of the call is the end of that.
pub(crate) async fn read_verified(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Verified>> {
    let mut found = read_job(client, scope, id).await?;
    while let Some(Loaded { job, place }) = found {
        let inline: Vec<i64> = place.history.log_ids().map(signed).collect();
        let ask = Ask::new(TOLD).with(Uuid(id.as_u128())).with(inline);
        let mut lines = Vec::new();
        for row in run_one(client, ask).await? {
            let told = (number(&row, 0)?, row.try_get(1)?, time_of(&row, 2)?, row.try_get(3)?);
            lines.extend(lines_of(told, id));
        }
        let verified = verify(&job, place.history.chain(), &in_order(lines));
        if verified.is_whole() {
            return Ok(Some(verified));
        }
        found = read_job(client, scope, id).await?;
        if found.as_ref().is_some_and(|again| again.job.version == job.version) {
            return Ok(Some(verified));
        }
    }
    Ok(None)
}
