//! Reads jobs and their payloads.

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{Job, JobId, TaskId, TenantId};

use crate::{
    postgres::{
        PgResult,
        link::{
            pipeline::{Ask, run_one},
            types::Uuid,
        },
        row::{
            column::id_of,
            job::{Loaded, job_columns, job_of, job_tables},
        },
    },
    read::Scope,
};

const JOB: &str = concat!("SELECT ", job_columns!(), job_tables!(), "WHERE j.id = $1");

/// The job of this id, with the lease that its session gives it.
pub(crate) async fn read_job(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<Loaded>> {
    let rows = run_one(client, Ask::new(JOB).with(Uuid(id.as_u128()))).await?;
    let loaded = rows.first().map(job_of).transpose()?;
    Ok(loaded.filter(|loaded| scope.admits(&loaded.job.spec.tenant)))
}

/// The tenant of a scope as statements compare it: null admits all.
pub(crate) fn whose(scope: &Scope) -> Option<String> {
    scope.word().map(str::to_owned)
}

/// The newest of a task, tenant by tenant. Served by the index `jobs_task`.
const OF_TASK: &str = "
    SELECT (SELECT id FROM jobs WHERE tenant = t.tenant AND task_id = $2 ORDER BY attempt DESC LIMIT 1)
    FROM (SELECT DISTINCT tenant FROM job_groups WHERE $1::text IS NULL OR tenant = $1) AS t";

/// The job of a task with the highest attempt.
pub(crate) async fn read_newest_of_task(
    client: &ClientWrapper,
    scope: &Scope,
    task: &TaskId,
) -> PgResult<Option<Job>> {
    let ask = Ask::new(OF_TASK).with(whose(scope)).with(task.as_str().to_owned());
    let mut ids: Vec<JobId> = Vec::new();
    for row in run_one(client, ask).await? {
        ids.extend(row.try_get::<_, Option<Uuid>>(0)?.map(|id| JobId::from_u128(id.0)));
    }
    // A job that named no task is the first of its own.
    ids.extend(task.as_str().parse::<JobId>().ok());
    let mut newest: Option<Job> = None;
    for id in ids {
        let job = read_job(client, scope, id).await?.map(|loaded| loaded.job);
        let job = job.filter(|job| job.spec.task_id == *task);
        newest = newest.into_iter().chain(job).max_by_key(|job| (job.attempt, job.id));
    }
    Ok(newest)
}

/// Jobs that are not at an end, for tests and tools, oldest first.
const OPEN_JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    job_tables!(),
    "WHERE j.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
     ORDER BY j.created_at, j.id"
);

pub(crate) async fn read_open_jobs(client: &ClientWrapper) -> PgResult<Vec<Job>> {
    let rows = run_one(client, Ask::new(OPEN_JOBS)).await?;
    rows.iter().map(|row| Ok(job_of(row)?.job)).collect()
}

/// Each child is looked up by its id. As a plain join, the planner may walk through all jobs of the store in the order of
/// their ids and ask for each whether it is a child: it did so once it had seen that most jobs are children of one parent.
/// A subquery with a limit or an offset is not merged with what is around it.
const OPEN_CHILDREN: &str = "
    SELECT child.id
    FROM (SELECT id FROM children WHERE parent = $1 AND id >= $4 ORDER BY id OFFSET 0) AS child
    CROSS JOIN LATERAL (
        SELECT FROM jobs
        WHERE jobs.id = child.id AND jobs.tenant = $2
            AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
        LIMIT 1) AS open
    ORDER BY child.id LIMIT $3";

/// Children of a job that are not at their end, oldest first.
pub(crate) async fn read_open_children(
    client: &ClientWrapper,
    tenant: &TenantId,
    parent: JobId,
    after: Option<JobId>,
    max: usize,
) -> PgResult<Vec<JobId>> {
    let from = after.map_or(0, |id| id.as_u128().saturating_add(1));
    let ask = Ask::new(OPEN_CHILDREN)
        .with(Uuid(parent.as_u128()))
        .with(tenant.as_str().to_owned())
        .with(i64::try_from(max).unwrap_or(i64::MAX))
        .with(Uuid(from));
    run_one(client, ask).await?.iter().map(|row| id_of(row, 0)).collect()
}

const PAYLOAD: &str = "
    SELECT payload FROM jobs WHERE id = $1 AND ($2::text IS NULL OR tenant = $2)";

/// The payload of a job, byte for byte.
pub(crate) async fn read_payload(
    client: &ClientWrapper,
    scope: &Scope,
    id: JobId,
) -> PgResult<Option<String>> {
    let ask = Ask::new(PAYLOAD).with(Uuid(id.as_u128())).with(whose(scope));
    let rows = run_one(client, ask).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}
