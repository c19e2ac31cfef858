//! Progress: how far the handler of a job said it had come.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{Epoch, JobId};

use super::column::{number, time_of};
use crate::{
    commit::Changes,
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::{Time, Uuid, signed},
        },
        read::job::whose,
    },
    read::{Progress, Scope},
};

const SAVE_PROGRESS: &str = "
    INSERT INTO progress (id, epoch, at, value)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::text[])
    ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, at = excluded.at, value = excluded.value";

/// The statement that saves how far handlers said they had come. The row of a job is locked first, so two commits
/// cannot deadlock here.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    if changes.progress.is_empty() {
        return;
    }
    let ids: Vec<Uuid> = changes.progress.keys().map(|id| Uuid(id.as_u128())).collect();
    let all = || changes.progress.values();
    asks.push(
        Ask::new(SAVE_PROGRESS)
            .with(ids)
            .with(all().map(|it| signed(it.epoch.get())).collect::<Vec<_>>())
            .with(all().map(|it| Time(it.at)).collect::<Vec<_>>())
            .with(all().map(|it| it.value.as_str().to_owned()).collect::<Vec<_>>()),
    );
}

const PROGRESS: &str = "
    SELECT p.epoch, p.at, p.value FROM progress p JOIN jobs j ON j.id = p.id
    WHERE p.id = $1 AND ($2::text IS NULL OR j.tenant = $2)";

/// How far the handler of a job said it had come.
pub(crate) async fn read_progress(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Progress>> {
    let ask = Ask::new(PROGRESS).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    let progress = |row: &Row| {
        let epoch = Epoch::new(number(row, 0)?);
        Ok(Progress { epoch, at: time_of(row, 1)?, value: row.try_get(2)? })
    };
    rows.first().map(progress).transpose()
}
