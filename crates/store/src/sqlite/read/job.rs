//! Reads jobs and their payloads.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{Job, JobId, TaskId, TenantId};

use crate::{
    read::Scope,
    sqlite::{
        SqlResult,
        claim::names::{Lookup, Stored},
        row::{
            column::{self, u128_of},
            job::{self, Loaded, job_columns, job_of},
            task::TaskName,
        },
    },
};

/// The job of this id, with the lease that its session gives it.
pub(crate) fn read_job(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<Loaded>> {
    let loaded = job::load_job(connection, id, &Stored(connection))?;
    Ok(loaded.filter(|loaded| scope.admits(&loaded.job.spec.tenant)))
}

/// The newest of a task, tenant by tenant. Served by the index `jobs_task`.
const OF_TASK: &str = "
    SELECT (SELECT id FROM jobs WHERE tenant = t.tenant AND task_id = ?2 ORDER BY attempt DESC LIMIT 1)
    FROM (SELECT DISTINCT tenant FROM job_groups WHERE ?1 IS NULL OR tenant = ?1) AS t";

/// The job of a task with the highest attempt.
pub(crate) fn read_newest_of_task(
    connection: &Connection,
    scope: &Scope,
    task: &TaskId,
) -> SqlResult<Option<Job>> {
    let name = TaskName::of(task);
    let mut statement = connection.prepare_cached(OF_TASK)?;
    let rows =
        statement.query_map(params![scope.word(), name], |row| column::id_or_none(row, 0))?;
    let mut ids: Vec<JobId> = Vec::new();
    for id in rows {
        ids.extend(id?.map(JobId::from_u128));
    }
    // A job that named no task is the first of its own.
    if let TaskName::Own(id) = name {
        ids.push(id);
    }
    let mut newest: Option<Job> = None;
    for id in ids {
        let job = read_job(connection, scope, id)?.map(|loaded| loaded.job);
        let job = job.filter(|job| job.spec.task_id == *task);
        newest = newest.into_iter().chain(job).max_by_key(|job| (job.attempt, job.id));
    }
    Ok(newest)
}

const OPEN_CHILDREN: &str = "
    SELECT jobs.id FROM children JOIN jobs ON jobs.seq = children.seq
    WHERE children.parent = ?1 AND jobs.tenant = ?2
        AND children.seq > coalesce((SELECT seq FROM jobs WHERE id = ?4), -1)
        AND jobs.state NOT IN ('succeeded', 'partial', 'failed', 'cancelled')
    ORDER BY children.seq LIMIT ?3";

/// Children of a job that are not at their end, oldest first.
pub(crate) fn read_open_children(
    connection: &Connection,
    tenant: &TenantId,
    parent: JobId,
    after: Option<JobId>,
    max: usize,
) -> SqlResult<Vec<JobId>> {
    let mut statement = connection.prepare_cached(OPEN_CHILDREN)?;
    let limit = i64::try_from(max).unwrap_or(i64::MAX);
    let after = after.map(|id| id.as_u128().to_be_bytes());
    let of = params![parent.as_u128().to_be_bytes(), tenant.as_str(), limit, after];
    let rows = statement.query_map(of, |row| Ok(JobId::from_u128(u128_of(row, 0)?)))?;
    rows.collect()
}

const PAYLOAD: &str = "
    SELECT coalesce(payload, (SELECT payload FROM payloads WHERE payloads.seq = jobs.seq))
    FROM jobs WHERE id = ?1 AND (?2 IS NULL OR tenant = ?2)";

/// The payload of a job, byte for byte.
pub(crate) fn read_payload(
    connection: &Connection,
    scope: &Scope,
    id: JobId,
) -> SqlResult<Option<String>> {
    let mut statement = connection.prepare_cached(PAYLOAD)?;
    let of = params![id.as_u128().to_be_bytes(), scope.word()];
    statement.query_row(of, |row| row.get(0)).optional()
}

/// Jobs that are not at an end, for tests and tools.
const OPEN_JOBS: &str = concat!(
    "SELECT ",
    job_columns!(),
    " FROM jobs
        WHERE state NOT IN ('succeeded', 'partial', 'failed', 'cancelled') ORDER BY seq"
);

pub(crate) fn load_open_jobs(
    connection: &Connection,
    names: &impl Lookup,
) -> SqlResult<Vec<Loaded>> {
    let mut statement = connection.prepare_cached(OPEN_JOBS)?;
    let rows = statement.query_map([], |row| job_of(row, names))?;
    rows.collect()
}
