//! The work of one commit: the rows it has loaded, where they stand, and the names it may add.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_kernel::{Job, JobId, WorkerId};

use super::{
    SqlResult,
    load::{HeldRow, Loaded, Place, load_held},
    names::Names,
};
use crate::{
    IdMap,
    commit::{Row, WorkingSet},
    job_row::with_session,
};

/// What one commit works on.
pub(super) struct Work<'a> {
    pub(super) set: WorkingSet<Place>,
    pub(super) names: &'a mut Names,
    held: &'a mut Held,
    /// No job has a later id.
    newest: JobId,
}

impl<'a> Work<'a> {
    /// Nothing yet, with room for so many jobs.
    pub(super) fn new(
        incarnation: u32,
        room: usize,
        names: &'a mut Names,
        held: &'a mut Held,
        newest: JobId,
    ) -> Self {
        let set = WorkingSet::new(incarnation, room);
        Self { set, names, held, newest }
    }

    pub(super) fn names(&self) -> &Names {
        self.names
    }

    /// Adds a job that was loaded.
    pub(super) fn add(&mut self, loaded: Loaded) {
        self.set.add_job(loaded.job, loaded.place);
    }

    /// Could a job of this id be stored? Ids grow with time, so a new one is later than all others.
    pub(super) fn may_be_stored(&self, id: JobId) -> bool {
        id <= self.newest
    }

    /// What a worker holds as far as this commit has come.
    pub(super) fn held_by(
        &self,
        connection: &Connection,
        worker: &WorkerId,
    ) -> SqlResult<Vec<HeldRow>> {
        let mut held = match self.names.session_of(worker) {
            Some((session, _)) => load_held(connection, session)?,
            None => Vec::new(),
        };
        held.retain(|row| !self.set.contains(row.id));
        let mine = |job: &&Job| job.lease.as_ref().is_some_and(|it| it.worker == *worker);
        held.extend(self.set.rows().map(|row| &*row.job).filter(mine).map(HeldRow::of));
        Ok(held)
    }

    /// Adds a job that the writer still holds. It says whether there was one.
    pub(super) fn take_held(&mut self, id: JobId) -> bool {
        let Some((mut job, mut place)) = self.held.jobs.remove(&id) else { return false };
        let session = job.lease.as_ref().and_then(|lease| {
            let (_, session) = self.names.session_of(&lease.worker)?;
            let adds = session.renewals != place.lease_seen || session.until > lease.until;
            adds.then_some(session)
        });
        if let Some(session) = session {
            with_session(Arc::make_mut(&mut job), &mut place.lease_seen, session);
        }
        self.set.add_job(job, place);
        true
    }
}

/// Jobs that workers hold, as their rows are. A settle needs no look-up: it was here a moment ago.
///
/// A commit takes what it works on, and puts back what is held afterwards.
#[derive(Default)]
pub(super) struct Held {
    jobs: IdMap<(Arc<Job>, Place)>,
}

impl Held {
    /// More than this many are not remembered; they are loaded instead.
    const MAX: usize = 16 * 1024;

    /// Remembers what is held after a commit.
    pub(super) fn put_back(&mut self, rows: IdMap<Row<Place>>) {
        for (id, row) in rows {
            // What was loaded by another road may be here from before.
            self.jobs.remove(&id);
            if row.job.lease.is_some() && self.jobs.len() < Self::MAX {
                self.jobs.insert(id, (row.job, row.place));
            }
        }
    }
}
