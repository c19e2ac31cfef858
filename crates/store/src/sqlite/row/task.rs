//! Tasks: their rows, and what their jobs say of them.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::{JobId, State, Task, TaskId, TenantId};

use super::{
    column::{state_of, u128_of},
    job::{JOB, unleased_job_of},
};
use crate::{
    IdMap,
    commit::{Changes, after},
    sqlite::{SqlResult, claim::names::Lookup},
};

const TASK_ROW: &str = "SELECT next_attempt FROM tasks WHERE tenant = ?1 AND task_id = ?2";

/// Served by the index `jobs_task`.
const TASK_JOBS: &str = "
    SELECT id, attempt, state FROM jobs
    WHERE tenant = ?1 AND task_id = ?2
    ORDER BY attempt DESC LIMIT 2";

/// A task as it is stored.
pub(crate) fn load_task(
    connection: &Connection,
    key: &(TenantId, TaskId),
    names: &impl Lookup,
) -> SqlResult<Option<Task>> {
    let named = load_task_row(connection, key)?;
    task_of(connection, key, named.as_ref(), None, names)
}

/// What is stored of a task that was named, without its jobs.
pub(crate) fn load_task_row(
    connection: &Connection,
    (tenant, task_id): &(TenantId, TaskId),
) -> SqlResult<Option<Task>> {
    let mut statement = connection.prepare_cached(TASK_ROW)?;
    let key = params![tenant.as_str(), TaskName::of(task_id)];
    let next: Option<u32> = statement.query_row(key, |row| row.get(0)).optional()?;
    let (tenant, task_id) = (tenant.clone(), task_id.clone());
    let task = |next_attempt| Task { tenant, task_id, next_attempt, active: None, failed: None };
    Ok(next.map(task))
}

/// A task by its row, if it was named, by its jobs that are stored, and by those on their way.
pub(crate) fn task_of(
    connection: &Connection,
    (tenant, task_id): &(TenantId, TaskId),
    named: Option<&Task>,
    flying: Option<&IdMap<(u32, State)>>,
    names: &impl Lookup,
) -> SqlResult<Option<Task>> {
    let name = TaskName::of(task_id);
    let mut runs: IdMap<(u32, State)> = IdMap::default();
    let mut by_jobs = connection.prepare_cached(TASK_JOBS)?;
    let mut rows = by_jobs.query(params![tenant.as_str(), name])?;
    while let Some(row) = rows.next()? {
        runs.insert(JobId::from_u128(u128_of(row, 0)?), (row.get(1)?, state_of(row, 2)?));
    }
    // A job that named no task has no task row, and its own id may still be named as a task.
    if let TaskName::Own(id) = name {
        let mut by_id = connection.prepare_cached(JOB)?;
        let own = by_id
            .query_row([id.as_u128().to_be_bytes()], |row| unleased_job_of(row, names))
            .optional()?;
        if let Some(own) = own.filter(|own| own.job.spec.tenant == *tenant) {
            runs.insert(id, (own.job.attempt, own.job.state));
        }
    }
    runs.extend(flying.into_iter().flatten().map(|(id, run)| (*id, *run)));
    let of_runs = runs.values().map(|(attempt, _)| attempt + 1).max();
    let Some(next_attempt) = of_runs.max(named.map(|task| task.next_attempt)) else {
        return Ok(None);
    };
    let open = runs.iter().find(|(_, (_, state))| !state.is_end());
    let active = open.map(|(id, _)| *id);
    let failed = runs
        .iter()
        .filter(|(_, (attempt, state))| *state == State::Failed && attempt + 1 == next_attempt);
    let failed = failed.map(|(id, _)| *id).max();
    let (tenant, task_id) = (tenant.clone(), task_id.clone());
    Ok(Some(Task { tenant, task_id, next_attempt, active, failed }))
}

/// A task's name in a row: our own ids as bytes, everything else as text.
pub(crate) enum TaskName<'a> {
    Own(JobId),
    Given(&'a str),
}

impl TaskName<'_> {
    pub(crate) fn of(task_id: &TaskId) -> TaskName<'_> {
        match task_id.as_str().parse() {
            Ok(id) => TaskName::Own(id),
            Err(_) => TaskName::Given(task_id.as_str()),
        }
    }
}

impl rusqlite::ToSql for TaskName<'_> {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        Ok(match self {
            TaskName::Own(id) => id.as_u128().to_be_bytes().to_vec().into(),
            TaskName::Given(name) => (*name).into(),
        })
    }
}

const SAVE_TASK: &str = "
    INSERT INTO tasks (tenant, task_id, next_attempt) VALUES (?1, ?2, ?3)
    ON CONFLICT DO UPDATE SET next_attempt = excluded.next_attempt";

/// Writes tasks that were named.
pub(crate) fn save(connection: &Connection, changes: &Changes) -> SqlResult<()> {
    for task in after(&changes.tasks) {
        let row = params![task.tenant.as_str(), TaskName::of(&task.task_id), task.next_attempt];
        connection.prepare_cached(SAVE_TASK)?.execute(row)?;
    }
    Ok(())
}
