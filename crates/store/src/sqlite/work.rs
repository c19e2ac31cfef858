//! The work of one commit: the rows it has loaded, where they stand, and the names it may add.

use windlass_kernel::{Job, JobId, WorkerId};

use super::{
    load::{Loaded, Place, with_session},
    names::Names,
};
use crate::{IdMap, commit::WorkingSet};

/// What one commit works on.
pub(super) struct Work<'a> {
    pub(super) set: WorkingSet,
    pub(super) places: IdMap<Place>,
    pub(super) names: &'a mut Names,
    held: &'a Held,
}

impl<'a> Work<'a> {
    pub(super) fn new(incarnation: u32, names: &'a mut Names, held: &'a Held) -> Self {
        let set = WorkingSet::new(incarnation);
        Self { set, places: IdMap::default(), names, held }
    }

    pub(super) fn names(&self) -> &Names {
        self.names
    }

    /// Adds a job that was loaded.
    pub(super) fn add(&mut self, loaded: Loaded) {
        self.places.insert(loaded.job.id, loaded.place);
        self.set.add_job(loaded.job);
    }

    /// What a worker holds as far as this commit has come, given the rows that it held before.
    pub(super) fn held_now<'b>(
        &'b self,
        rows: &'b [Loaded],
        worker: &'b WorkerId,
    ) -> impl Iterator<Item = &'b Job> {
        let untouched = rows.iter().map(|loaded| &loaded.job);
        let untouched = untouched.filter(|job| !self.set.contains(job.id));
        let is_held = |job: &&Job| job.lease.as_ref().is_some_and(|it| it.worker == *worker);
        untouched.chain(self.set.jobs().filter(is_held))
    }

    /// Adds a job that the writer still holds. It says whether there was one.
    pub(super) fn take_cached(&mut self, id: JobId) -> bool {
        let Some(mut loaded) = self.held.jobs.get(&id).cloned() else { return false };
        let worker = loaded.job.lease.as_ref().map(|lease| &lease.worker);
        if let Some((_, session)) = worker.and_then(|worker| self.names.session_of(worker)) {
            with_session(&mut loaded, session);
        }
        self.add(loaded);
        true
    }
}

/// Jobs that workers hold, as their rows are. A settle needs no look-up: it was here a moment ago.
#[derive(Default)]
pub(super) struct Held {
    jobs: IdMap<Loaded>,
}

impl Held {
    /// More than this many are not remembered; they are loaded instead.
    const MAX: usize = 16 * 1024;

    /// Remembers what is held after a commit, and forgets what is not.
    pub(super) fn update(&mut self, jobs: IdMap<Job>, places: &IdMap<Place>) {
        for (id, job) in jobs {
            if job.lease.is_none() {
                self.jobs.remove(&id);
            } else if self.jobs.len() < Self::MAX || self.jobs.contains_key(&id) {
                self.jobs.insert(id, Loaded { job, place: places[&id].clone() });
            }
        }
    }
}
