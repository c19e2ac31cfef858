//! The work of one commit: the rows it has loaded, where they stand, and the names it may add.
//!
//! A row is looked for in the working set, then in plans in flight, newest first, then in the cache
//! of leased jobs, then in the database: each is newer than the next.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use rusqlite::Connection;
use windlass_kernel::{Job, JobId, State, TaskId, TenantId, Timestamp, WorkerId, ids::ClaimId};

use super::write_plan::{Numbers, WritePlan};
use crate::{
    IdMap,
    commit::{Changes, Key, Noun, Puts, Row, Unique, WorkingSet},
    job_row::with_session,
    sqlite::{
        SqlResult,
        claim::{names::Names, ready::Ready, rules::Rules},
        row::{
            granted,
            job::{Loaded, Place},
            lease::{HeldRow, load_held},
        },
    },
};

/// What one commit works on.
pub(crate) struct Work<'a> {
    pub(crate) set: WorkingSet<Place>,
    pub(crate) names: &'a mut Names,
    pub(crate) ready: &'a mut Ready,
    pub(crate) rules: &'a mut Rules,
    held: &'a mut Held,
    /// Plans that are on their way, oldest first.
    flying: &'a VecDeque<Arc<WritePlan>>,
    /// The greatest numbers and ids that were handed out before this commit.
    numbers: Numbers,
}

/// Attempts and states of jobs, by the tasks that they are runs of.
pub(crate) type Runs<'a> = HashMap<(&'a TenantId, &'a TaskId), IdMap<(u32, State)>>;

/// The writer's caches, lent to one commit.
pub(crate) struct Remembered<'a> {
    pub(crate) names: &'a mut Names,
    pub(crate) held: &'a mut Held,
    pub(crate) ready: &'a mut Ready,
    pub(crate) rules: &'a mut Rules,
}

impl<'a> Work<'a> {
    /// Nothing yet, with room for so many jobs.
    pub(crate) fn new(
        incarnation: u32,
        room: usize,
        known: Remembered<'a>,
        flying: &'a VecDeque<Arc<WritePlan>>,
        numbers: Numbers,
    ) -> Self {
        let Remembered { names, held, ready, rules } = known;
        let mut set = WorkingSet::new(incarnation, room);
        set.set_rules(&rules.book);
        Self { set, names, ready, rules, held, flying, numbers }
    }

    pub(crate) fn names(&self) -> &Names {
        self.names
    }

    /// Adds a job that was loaded, unless the working set or a plan in flight has a newer version
    /// of it.
    pub(crate) fn add(&mut self, loaded: Loaded) {
        let id = loaded.job.id;
        if !self.set.contains(id) && !self.take_flying(id) {
            self.set.add_job(loaded.job, loaded.place);
        }
    }

    /// Adds the job with this key, if it is on its way. It says whether there is one.
    pub(crate) fn take_flying_key(&mut self, key: &Key) -> bool {
        let found = self.flying.iter().rev().find_map(|plan| plan.by_key(key));
        found.map(|row| row.job.id).is_some_and(|id| self.take_flying(id))
    }

    /// Adds the job with this unique key, if it is on its way and not at its end. It says whether there is one.
    pub(crate) fn take_flying_unique(&mut self, unique: &Unique) -> bool {
        let found = self.flying.iter().rev().find_map(|plan| plan.by_unique(unique));
        let is_open = |id: &JobId| self.flying_job(*id).is_some_and(|row| !row.job.state.is_end());
        found.filter(is_open).is_some_and(|id| self.take_flying(id))
    }

    /// A row beside jobs: as a plan in flight leaves it, or else as it is stored.
    pub(crate) fn row<T: Noun>(
        &self,
        puts: impl Fn(&Changes) -> &Puts<T>,
        key: &T::Key,
        load: impl FnOnce() -> SqlResult<Option<T>>,
    ) -> SqlResult<Option<Arc<T>>> {
        match self.flying.iter().rev().find_map(|plan| puts(&plan.changes).get(key)) {
            Some(put) => Ok(put.after.clone()),
            None => Ok(load()?.map(Arc::new)),
        }
    }

    /// The jobs on their way, by the tasks that they are runs of.
    pub(crate) fn flying_runs(&self) -> Runs<'a> {
        let mut runs = Runs::new();
        for row in self.flying.iter().flat_map(|plan| plan.rows.values()) {
            let (job, spec) = (&row.job, &row.job.spec);
            let of_task = runs.entry((&spec.tenant, &spec.task_id)).or_default();
            // A later plan knows better.
            of_task.insert(job.id, (job.attempt, job.state));
        }
        runs
    }

    /// A job as the newest plan in flight leaves it.
    pub(crate) fn flying_job(&self, id: JobId) -> Option<&'a Row<Place>> {
        self.flying.iter().rev().find_map(|plan| plan.rows.get(&id))
    }

    fn take_flying(&mut self, id: JobId) -> bool {
        let Some(row) = self.flying_job(id) else { return false };
        let (job, place) = (row.job.clone(), row.place.clone());
        self.add_known(job, place);
        true
    }

    /// The job of this number, which is not in the database yet: a plan in flight makes it.
    pub(crate) fn new_job(&self, seq: i64) -> &'a Job {
        let rows = self.flying.iter().rev().flat_map(|plan| plan.rows.values());
        let row = rows.into_iter().find(|row| row.place.seq == seq);
        &row.expect("whatever is ready is stored, or on its way").job
    }

    /// Adds a job that is not in the database yet: a plan in flight makes it.
    pub(crate) fn add_new(&mut self, id: JobId) {
        if !self.set.contains(id) {
            self.take_flying(id);
        }
    }

    /// Where the jobs are that this commit has touched and that could be claimed before it.
    pub(crate) fn touched(&self) -> Vec<i64> {
        let could = |job: &Job| job.claim_at().is_some();
        let touched = self.set.rows().filter(|row| could(row.before.as_ref().unwrap_or(&row.job)));
        // A job that this commit makes has no number yet, and is not in the cache of ready jobs.
        touched.map(|row| row.place.seq).filter(|seq| *seq > 0).collect()
    }

    /// Plans that are on their way, oldest first.
    pub(crate) fn flying(&self) -> &'a VecDeque<Arc<WritePlan>> {
        self.flying
    }

    /// Could a job of this id be stored? Ids grow with time, so a new one is later than all others.
    pub(crate) fn may_be_stored(&self, id: JobId) -> bool {
        id <= self.numbers.newest
    }

    /// Was this claim granted something before? Most ids grow with time, so a new claim is later than all others.
    pub(crate) fn was_granted(
        &self,
        connection: &Connection,
        claim: ClaimId,
        now: Timestamp,
    ) -> SqlResult<bool> {
        if self.set.was_granted(claim) || claim > self.numbers.newest_claim {
            return Ok(self.set.was_granted(claim));
        }
        let is_flying = self.flying.iter().any(|plan| plan.changes.claims.contains(&claim));
        Ok(is_flying || granted::is_known(connection, claim, now)?)
    }

    /// What a worker holds as far as this commit has come.
    pub(crate) fn held_by(
        &self,
        connection: &Connection,
        worker: &WorkerId,
    ) -> SqlResult<Vec<HeldRow>> {
        let mut held = match self.names.session_of(worker) {
            Some((session, _)) => load_held(connection, session)?,
            None => Vec::new(),
        };
        let mut newer: IdMap<&Job> = IdMap::default();
        for plan in self.flying {
            newer.extend(plan.rows.iter().map(|(id, row)| (*id, &*row.job)));
        }
        newer.extend(self.set.rows().map(|row| (row.job.id, &*row.job)));
        held.retain(|row| !newer.contains_key(&row.id));
        let mine = |job: &&&Job| job.lease.as_ref().is_some_and(|it| it.worker == *worker);
        held.extend(newer.values().filter(mine).map(|job| HeldRow::of(job)));
        Ok(held)
    }

    /// Adds a job from a plan in flight or from the cache of leased jobs. False, if it is in
    /// neither.
    pub(crate) fn take_held(&mut self, id: JobId) -> bool {
        if self.take_flying(id) {
            return true;
        }
        let Some((job, place)) = self.held.jobs.remove(&id) else { return false };
        self.add_known(job, place);
        true
    }

    /// Adds a job as it was last seen, with what its session has added since.
    fn add_known(&mut self, mut job: Arc<Job>, mut place: Place) {
        let session = job.lease.as_ref().and_then(|lease| {
            let (_, session) = self.names.session_of(&lease.worker)?;
            let adds = session.renewals != place.lease_seen || session.until > lease.until;
            adds.then_some(session)
        });
        if let Some(session) = session {
            with_session(Arc::make_mut(&mut job), &mut place.lease_seen, session);
        }
        self.set.add_job(job, place);
    }
}

/// A cache of the rows of leased jobs: the next write about such a job is most likely its settle,
/// which then needs no look-up.
///
/// A commit takes what it works on, and puts back what is held afterwards.
#[derive(Default)]
pub(crate) struct Held {
    jobs: IdMap<(Arc<Job>, Place)>,
}

impl Held {
    /// The most rows in the cache. Others are loaded when they are needed.
    const MAX: usize = 16 * 1024;

    /// Remembers what is held after a commit that was written.
    pub(crate) fn put_back(&mut self, rows: IdMap<Row<Place>>) {
        for (id, row) in rows {
            // A row that the commit loaded from the database, not from this cache, may still be
            // cached as it was before.
            self.jobs.remove(&id);
            if row.job.lease.is_some() && self.jobs.len() < Self::MAX {
                self.jobs.insert(id, (row.job, row.place));
            }
        }
    }
}
