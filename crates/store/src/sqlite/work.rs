//! The work of one commit: the rows it has loaded, where they stand, and the names it may add.
//!
//! The database shows what is written. What is planned and on its way to the disk is newer, and comes first.

use std::{collections::VecDeque, sync::Arc};

use rusqlite::Connection;
use windlass_kernel::{Job, JobId, Timestamp, WorkerId, ids::ClaimId};

use super::{
    SqlResult, granted,
    load::{HeldRow, Loaded, Place, load_held},
    names::Names,
    plan::{Numbers, Plan},
    ready::Ready,
    rules::Rules,
};
use crate::{
    IdMap,
    commit::{Key, Row, WorkingSet},
    job_row::with_session,
};

/// What one commit works on.
pub(super) struct Work<'a> {
    pub(super) set: WorkingSet<Place>,
    pub(super) names: &'a mut Names,
    pub(super) ready: &'a mut Ready,
    pub(super) rules: &'a mut Rules,
    held: &'a mut Held,
    /// Plans that are on their way, oldest first.
    flying: &'a VecDeque<Arc<Plan>>,
    /// What was given out before it.
    numbers: Numbers,
}

/// What the writer remembers, and a commit uses.
pub(super) struct Remembered<'a> {
    pub(super) names: &'a mut Names,
    pub(super) held: &'a mut Held,
    pub(super) ready: &'a mut Ready,
    pub(super) rules: &'a mut Rules,
}

impl<'a> Work<'a> {
    /// Nothing yet, with room for so many jobs.
    pub(super) fn new(
        incarnation: u32,
        room: usize,
        known: Remembered<'a>,
        flying: &'a VecDeque<Arc<Plan>>,
        numbers: Numbers,
    ) -> Self {
        let Remembered { names, held, ready, rules } = known;
        let mut set = WorkingSet::new(incarnation, room);
        set.set_rules(&rules.book);
        Self { set, names, ready, rules, held, flying, numbers }
    }

    pub(super) fn names(&self) -> &Names {
        self.names
    }

    /// Adds a job that was loaded, unless it is known better.
    pub(super) fn add(&mut self, loaded: Loaded) {
        let id = loaded.job.id;
        if !self.set.contains(id) && !self.take_flying(id) {
            self.set.add_job(loaded.job, loaded.place);
        }
    }

    /// Adds the job with this key, if it is on its way. It says whether there is one.
    pub(super) fn take_flying_key(&mut self, key: &Key) -> bool {
        let found = self.flying.iter().rev().find_map(|plan| plan.by_key(key));
        found.map(|row| row.job.id).is_some_and(|id| self.take_flying(id))
    }

    fn take_flying(&mut self, id: JobId) -> bool {
        let Some(row) = self.flying.iter().rev().find_map(|plan| plan.rows.get(&id)) else {
            return false;
        };
        let (job, place) = (row.job.clone(), row.place.clone());
        self.add_known(job, place);
        true
    }

    /// The job of this number, which nobody can read yet: it is on its way.
    pub(super) fn new_job(&self, seq: i64) -> &'a Job {
        let rows = self.flying.iter().rev().flat_map(|plan| plan.rows.values());
        let row = rows.into_iter().find(|row| row.place.seq == seq);
        &row.expect("whatever is ready is stored, or on its way").job
    }

    /// Adds a job that nobody can read yet: it is on its way.
    pub(super) fn add_new(&mut self, id: JobId) {
        if !self.set.contains(id) {
            self.take_flying(id);
        }
    }

    /// Where the jobs are that this commit has touched and that could be claimed before it.
    pub(super) fn touched(&self) -> Vec<i64> {
        let could = |job: &Job| job.claim_at().is_some();
        let touched = self.set.rows().filter(|row| could(row.before.as_ref().unwrap_or(&row.job)));
        // One that is just made has no place yet, and is remembered nowhere.
        touched.map(|row| row.place.seq).filter(|seq| *seq > 0).collect()
    }

    /// Plans that are on their way, oldest first.
    pub(super) fn flying(&self) -> &'a VecDeque<Arc<Plan>> {
        self.flying
    }

    /// Could a job of this id be stored? Ids grow with time, so a new one is later than all others.
    pub(super) fn may_be_stored(&self, id: JobId) -> bool {
        id <= self.numbers.newest
    }

    /// Was this claim granted something before? Most ids grow with time, so a new claim is later than all others.
    pub(super) fn was_granted(
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
    pub(super) fn held_by(
        &self,
        connection: &Connection,
        worker: &WorkerId,
    ) -> SqlResult<Vec<HeldRow>> {
        let mut held = match self.names.session_of(worker) {
            Some((session, _)) if self.held.knows(session) => self.held.of(worker),
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

    /// Adds a job that is on its way, or that the writer still holds. It says whether there was one.
    pub(super) fn take_held(&mut self, id: JobId) -> bool {
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

/// Jobs that workers hold, as their rows are. A settle needs no look-up: it was here a moment ago.
///
/// A commit takes what it works on, and puts back what is held afterwards.
pub(super) struct Held {
    jobs: IdMap<(Arc<Job>, Place)>,
    /// Sessions with a later number began after this did.
    since: i64,
    /// Was something not remembered?
    is_full: bool,
}

impl Held {
    /// More than this many are not remembered; they are loaded instead.
    const MAX: usize = 16 * 1024;

    /// Nothing yet. Sessions that begin from now on have a later number than this.
    pub(super) fn new(since: i64) -> Self {
        Self { jobs: IdMap::default(), since, is_full: false }
    }

    /// Is all known here that this session holds, but for what is on its way? A worker that has a thousand jobs in
    /// hand would have a thousand rows read by each claim.
    fn knows(&self, session: i64) -> bool {
        session > self.since && !self.is_full
    }

    /// What a worker holds.
    fn of(&self, worker: &WorkerId) -> Vec<HeldRow> {
        let mine = |job: &&Arc<Job>| job.lease.as_ref().is_some_and(|it| it.worker == *worker);
        self.jobs.values().map(|(job, _)| job).filter(mine).map(|job| HeldRow::of(job)).collect()
    }

    /// Remembers what is held after a commit that was written.
    pub(super) fn put_back(&mut self, rows: IdMap<Row<Place>>) {
        for (id, row) in rows {
            // What was loaded by another road may be here from before.
            self.jobs.remove(&id);
            if row.job.lease.is_none() {
                continue;
            }
            if self.jobs.len() < Self::MAX {
                self.jobs.insert(id, (row.job, row.place));
            } else {
                self.is_full = true;
            }
        }
    }
}
