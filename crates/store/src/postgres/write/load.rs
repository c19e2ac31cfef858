//! Loads the rows that a commit needs, and locks them.

use std::collections::BTreeSet;

use tokio_postgres::Row;
use windlass_kernel::{DeadLetter, DlqId};

use super::{first_load::Locking, work::Work};
use crate::{
    commit::Needs,
    postgres::{
        Failure, PgResult,
        claim::names::Names,
        link::{
            pipeline::{Ask, run},
            types::Uuid,
        },
        row::{
            column::{damaged, json_of},
            job::{JOBS_READ, Loaded, unpack},
            letter::ask_letters,
            session::{KnownSession, SESSIONS_BY_ID},
            task::load_tasks,
        },
    },
};

/// Adds jobs by their locked rows, which have `row_columns`, with the groups and sessions they refer to.
pub(crate) async fn add_jobs(work: &mut Work<'_>, names: &Names, rows: &[Row]) -> PgResult<()> {
    let mut sessions: Vec<i32> = Vec::new();
    let mut knows_groups = true;
    for row in rows {
        let session: Option<i32> = row.try_get(15)?;
        sessions.extend(session.filter(|id| work.session_by_id(*id).is_none()));
        knows_groups &= names.named_by(row.try_get(3)?).is_some();
    }
    if !sessions.is_empty() {
        for row in run(work.client, &[Ask::new(SESSIONS_BY_ID).with(sessions)]).await?.remove(0) {
            work.add_session(KnownSession::of(&row)?);
        }
    }
    if !knows_groups {
        names.learn(work.client).await?;
    }
    for row in rows {
        let id = row.try_get(3)?;
        let group = names.named_by(id);
        let group =
            group.ok_or_else(|| crate::postgres::Failure::damaged(format!("no group {id}")))?;
        let (mut unpacked, mut place) = unpack(row, &group)?;
        if let Some(id) = place.session {
            let known = work.session_by_id(id);
            let known = known
                .ok_or_else(|| crate::postgres::Failure::damaged(format!("no session {id}")))?;
            place.lease_seen = unpacked.held(&known.session).map_err(damaged)?;
        }
        place.history = unpacked.history;
        work.add(Loaded { job: unpacked.job, place });
    }
    Ok(())
}

/// What can only be asked for when other rows are there: letters with their jobs, and tasks.
pub(crate) async fn load_rest(
    work: &mut Work<'_>,
    names: &Names,
    needs: &Needs,
    locking: Locking,
) -> PgResult<()> {
    let mut tasks_of = needs.tasks_of.clone();
    if !needs.letters.is_empty() || !needs.reruns.is_empty() {
        let letters = run(work.client, &[ask_letters(needs, locking)]).await?.remove(0);
        let letters: Vec<DeadLetter> =
            letters.iter().map(|row| json_of(row, 0)).collect::<PgResult<_>>()?;
        let jobs = letters.iter().map(|letter| letter.job_id);
        let missing: Vec<Uuid> =
            jobs.filter(|id| !work.set.contains(*id)).map(|id| Uuid(id.as_u128())).collect();
        // They were locked together with all others that the commit names, or they are at their end and stay as they are.
        let rows = run(work.client, &[Ask::new(JOBS_READ).with(missing)]).await?.remove(0);
        add_jobs(work, names, &rows).await?;
        for letter in letters {
            tasks_of.insert(letter.job_id);
            work.set.add_letter(letter);
        }
    }
    let of_jobs = tasks_of.iter().filter_map(|id| work.set.job(*id));
    let of_jobs = of_jobs.map(|job| (job.spec.tenant.clone(), job.spec.task_id.clone()));
    let tasks: BTreeSet<_> = needs.tasks.iter().cloned().chain(of_jobs).collect();
    if tasks.is_empty() {
        return Ok(());
    }
    for task in load_tasks(work.client, tasks.into_iter().collect(), locking).await? {
        let letter = task.failed.map(DlqId::of_job);
        let may_rerun = needs.reruns.contains(&(task.tenant.clone(), task.task_id.clone()));
        if may_rerun && letter.is_some_and(|letter| !work.set.has_letter(letter)) {
            // Its job failed since letters were asked for, which are locked before tasks.
            return Err(Failure::Overtaken);
        }
        work.set.add_task(task);
    }
    Ok(())
}
