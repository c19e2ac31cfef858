//! Loads the rows that a commit needs.

use rusqlite::{Connection, OptionalExtension as _};
use windlass_kernel::{DlqId, JobId, Task};

use super::work::Work;
use crate::{
    commit::Needs,
    sqlite::{
        SqlResult,
        row::{
            job::{JOB, job_of, load_by_key, load_job, load_unique},
            letter::load_letter,
            task::{load_task_row, task_of},
        },
    },
};

/// Loads everything that the writes of one commit need.
pub(crate) fn load(connection: &Connection, needs: &Needs, work: &mut Work<'_>) -> SqlResult<()> {
    let mut by_id = connection.prepare_cached(JOB)?;
    for id in &needs.jobs {
        if !work.may_be_stored(*id) || work.set.contains(*id) || work.take_held(*id) {
            continue;
        }
        let row = [id.as_u128().to_be_bytes()];
        if let Some(loaded) = by_id.query_row(row, |row| job_of(row, work.names())).optional()? {
            work.add(loaded);
        }
    }
    for key in &needs.keys {
        if !work.take_flying_key(key)
            && let Some(loaded) = load_by_key(connection, key, work.names())?
        {
            work.add(loaded);
        }
    }
    for unique in &needs.uniques {
        if !work.take_flying_unique(unique)
            && let Some(loaded) = load_unique(connection, unique, work.names())?
        {
            work.add(loaded);
        }
    }
    let mut tasks_of = needs.tasks_of.clone();
    for id in &needs.letters {
        let load = || load_letter(connection, *id);
        let letter = work.row(|changes| &changes.letters, id, load)?;
        let Some(letter) = letter else { continue };
        load_into(connection, letter.job_id, work)?;
        tasks_of.insert(letter.job_id);
        work.set.add_letter(letter);
    }
    let of_jobs = tasks_of.iter().filter_map(|id| work.set.job(*id));
    let of_jobs = of_jobs.map(|job| (job.spec.tenant.clone(), job.spec.task_id.clone()));
    let tasks: Vec<_> = needs.tasks.iter().cloned().chain(of_jobs).collect();
    if tasks.is_empty() {
        return Ok(());
    }
    let flying = work.flying_runs();
    for key in tasks {
        let named = work.row(|changes| &changes.tasks, &key, || load_task_row(connection, &key))?;
        let runs = flying.get(&(&key.0, &key.1));
        if let Some(task) = task_of(connection, &key, named.as_deref(), runs, work.names())? {
            load_failed(connection, &task, work)?;
            work.set.add_task(task);
        }
    }
    Ok(())
}

/// Loads a job, unless it is part of the commit already.
fn load_into(connection: &Connection, id: JobId, work: &mut Work<'_>) -> SqlResult<()> {
    if !work.set.contains(id)
        && !work.take_held(id)
        && let Some(loaded) = load_job(connection, id, work.names())?
    {
        work.add(loaded);
    }
    Ok(())
}

/// The last job of a task, if it failed, and its dead letter.
fn load_failed(connection: &Connection, task: &Task, work: &mut Work<'_>) -> SqlResult<()> {
    let Some(id) = task.failed else { return Ok(()) };
    load_into(connection, id, work)?;
    let letter = DlqId::of_job(id);
    let load = || load_letter(connection, letter);
    if let Some(letter) = work.row(|changes| &changes.letters, &letter, load)? {
        work.set.add_letter(letter);
    }
    Ok(())
}
