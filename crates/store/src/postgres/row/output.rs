//! Outputs: what handlers gave back, one row an attempt.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::JobId;

use super::column::number_32;
use crate::{
    commit::Changes,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Uuid, signed_32},
        },
        read::job::whose,
    },
    read::{Output, Scope},
};

const SAVE_OUTPUT: &str = "
    INSERT INTO outputs (id, attempt, result, remaining, stats) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (id, attempt) DO UPDATE SET result = excluded.result,
        remaining = excluded.remaining, stats = excluded.stats";

/// The statements that save what handlers gave back.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    let text = |payload: &Option<windlass_kernel::Payload>| {
        payload.as_ref().map(|payload| payload.as_str().to_owned())
    };
    for output in &changes.outputs {
        asks.push(
            Ask::new(SAVE_OUTPUT)
                .with(Uuid(output.job_id.as_u128()))
                .with(signed_32(output.attempt))
                .with(text(&output.result))
                .with(text(&output.remaining))
                .with(text(&output.stats)),
        );
    }
}

const LAST_OUTPUT: &str = "
    SELECT o.attempt, o.result, o.remaining, o.stats FROM outputs o JOIN jobs j ON j.id = o.id
    WHERE o.id = $1 AND ($2::text IS NULL OR j.tenant = $2) ORDER BY o.attempt DESC LIMIT 1";

/// What the handler of the last attempt gave back that gave back anything.
pub(crate) async fn read_last_output(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Output>> {
    let ask = Ask::new(LAST_OUTPUT).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    let output = |row: &Row| {
        Ok(Output {
            attempt: number_32(row, 0)?,
            result: row.try_get(1)?,
            remaining: row.try_get(2)?,
            stats: row.try_get(3)?,
        })
    };
    rows.first().map(output).transpose()
}
