//! Tasks: their rows, and what their jobs say of them.

use tokio_postgres::Row;
use windlass_kernel::{JobId, State, Task, TaskId, TenantId};

use super::column::{number_32, state_of};
use crate::{
    commit::{Changes, after},
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run},
            types::{Uuid, signed_32},
        },
        write::first_load::Locking,
    },
};

macro_rules! task_rows {
    ($waits:literal) => {
        concat!(
            "SELECT t.tenant, t.task_id, t.next_attempt FROM tasks t
             JOIN unnest($1::text[], $2::text[]) AS k (tenant, task_id) USING (tenant, task_id)
             ORDER BY tenant, task_id FOR UPDATE OF t",
            $waits
        )
    };
}

const TASK_ROWS: &str = task_rows!("");

const TASK_ROWS_NO_WAIT: &str = task_rows!(" NOWAIT");

/// The last two attempts of each task. Served by the index `jobs_task`.
const TASK_JOBS: &str = "
    SELECT k.tenant, k.task_id, j.id, j.attempt, j.state
    FROM unnest($1::text[], $2::text[]) AS k (tenant, task_id), LATERAL (
        SELECT id, attempt, state FROM jobs
        WHERE jobs.tenant = k.tenant AND jobs.task_id = k.task_id AND jobs.task_id IS NOT NULL
        ORDER BY attempt DESC LIMIT 2) j";

/// A job that named no task has no task row, and its own id may still be named as one.
const OWN_TASKS: &str = "SELECT tenant, id, attempt, state FROM jobs WHERE id = ANY($1)";

/// The job that this task is named after, if it is one of our ids.
pub(crate) fn own_task(task: &TaskId) -> Option<Uuid> {
    task.as_str().parse::<JobId>().ok().map(|id| Uuid(id.as_u128()))
}

/// Tasks as they stand; those that nobody has named are left out.
pub(crate) async fn load_tasks(
    client: &deadpool_postgres::ClientWrapper,
    names: Vec<(TenantId, TaskId)>,
    locking: Locking,
) -> PgResult<Vec<Task>> {
    let locked = if locking == Locking::NoWait { TASK_ROWS_NO_WAIT } else { TASK_ROWS };
    let tenants: Vec<String> = names.iter().map(|(tenant, _)| tenant.as_str().to_owned()).collect();
    let ids: Vec<String> = names.iter().map(|(_, task)| task.as_str().to_owned()).collect();
    let own: Vec<Uuid> = names.iter().filter_map(|(_, task)| own_task(task)).collect();
    let found = run(
        client,
        &[
            Ask::new(locked).with(tenants.clone()).with(ids.clone()),
            Ask::new(TASK_JOBS).with(tenants).with(ids),
            Ask::new(OWN_TASKS).with(own),
        ],
    )
    .await?;
    let mut tasks = Vec::new();
    for (tenant, task_id) in names {
        let is_it = |row: &&Row| {
            row.get::<_, &str>(0) == tenant.as_str() && row.get::<_, &str>(1) == task_id.as_str()
        };
        let mut next = found[0].iter().find(is_it).map(|row| number_32(row, 2)).transpose()?;
        let (mut active, mut failed) = (None, None);
        let of_task = found[1].iter().filter(is_it).map(|row| (row, 2));
        let own = found[2].iter().filter(|row| {
            let id = JobId::from_u128(row.get::<_, Uuid>(1).0);
            row.get::<_, &str>(0) == tenant.as_str() && TaskId::of_job(id) == task_id
        });
        for (row, first) in of_task.chain(own.map(|row| (row, 1))) {
            let id = JobId::from_u128(row.try_get::<_, Uuid>(first)?.0);
            let (attempt, state) = (number_32(row, first + 1)?, state_of(row, first + 2)?);
            next = next.max(Some(attempt + 1));
            if !state.is_end() {
                active = Some(id);
            }
            if state == State::Failed {
                failed = failed.max(Some((attempt, id)));
            }
        }
        tasks.extend(next.map(|next_attempt| {
            let is_last = |(attempt, _): &(u32, JobId)| attempt + 1 == next_attempt;
            let failed = failed.filter(is_last).map(|(_, id)| id);
            Task { tenant, task_id, next_attempt, active, failed }
        }));
    }
    Ok(tasks)
}

const SAVE_TASK: &str = "
    INSERT INTO tasks (tenant, task_id, next_attempt) VALUES ($1, $2, $3)
    ON CONFLICT (tenant, task_id) DO UPDATE SET next_attempt = excluded.next_attempt";

/// The statements that save tasks that were named.
pub(crate) fn save(changes: &Changes, asks: &mut Vec<Ask>) {
    for task in after(&changes.tasks) {
        asks.push(
            Ask::new(SAVE_TASK)
                .with(task.tenant.as_str().to_owned())
                .with(task.task_id.as_str().to_owned())
                .with(signed_32(task.next_attempt)),
        );
    }
}
