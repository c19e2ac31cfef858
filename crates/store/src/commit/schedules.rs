//! Schedules in a commit: decided before everything else, so that the jobs which they make are there for it.
//!
//! A backend loads and locks the rows, has them decided, loads what the jobs to be made need, and has them made. In
//! between nothing of this has IO.

use std::sync::Arc;

use windlass_kernel::{
    Answer, Job, JobId, Note, Op, Refusal, Schedule, ScheduleName, ScheduleOp, TenantId, Timestamp,
    schedule::{Action, Change, Decision, Firing, LastJob, Overlap, decide},
};

use super::{Reply, WorkingSet, Write, table::Table};
use crate::IdMap;

/// Where a schedule stands: its tenant and its name.
pub type ScheduleKey = (TenantId, ScheduleName);

/// What an op on a schedule is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scheduled {
    /// The schedule after it; none, if it was deleted.
    pub schedule: Option<Arc<Schedule>>,
    /// Jobs that were made.
    pub made: Vec<JobId>,
    /// Jobs that were there already.
    pub known: Vec<JobId>,
    /// For a backfill that did not come to its end: the slot that it goes on from.
    pub goes_on_from: Option<Timestamp>,
}

/// The schedules of one commit.
#[derive(Debug, Default)]
pub(super) struct Schedules {
    pub(super) rows: Table<Schedule>,
    /// Are the last jobs of schedules at their end? One that is not here was forgotten.
    last_jobs: IdMap<LastJob>,
}

/// An op that was decided, and whose jobs are not made yet.
pub(crate) struct Decided {
    /// The place of its write.
    pub(crate) place: usize,
    pub(crate) firings: Vec<Firing>,
    notes: Vec<Note>,
    told: Scheduled,
}

impl<P: Default> WorkingSet<P> {
    /// Adds a schedule that was loaded.
    pub(crate) fn add_schedule(&mut self, schedule: impl Into<Arc<Schedule>>) {
        self.schedules.rows.add(schedule);
    }

    /// Adds what is known of the last job of a schedule.
    pub(crate) fn add_last_job(&mut self, job_id: JobId, is_ended: bool) {
        let last_job = if is_ended { LastJob::Ended } else { LastJob::Active };
        self.schedules.last_jobs.insert(job_id, last_job);
    }

    /// Jobs that a schedule which was loaded looks at before it fires.
    pub(crate) fn last_jobs(&self) -> Vec<JobId> {
        let rows = self.schedules.rows.rows();
        rows.filter(|row| row.spec.overlap != Overlap::Allow)
            .filter_map(|row| row.last_job)
            .collect()
    }

    /// When the last of these schedules changed: time does not go back behind it.
    #[cfg(feature = "postgres")]
    pub(crate) fn schedules_seen_at(&self) -> Option<Timestamp> {
        self.schedules.rows.rows().map(|row| row.updated_at).max()
    }

    /// Decides the ops on schedules among these writes, in order.
    pub(crate) fn decide_schedules(
        &mut self,
        writes: &[Write],
        now: Timestamp,
    ) -> (Vec<Decided>, Vec<(usize, Refusal)>) {
        let (mut decided, mut refused) = (Vec::new(), Vec::new());
        for (place, write) in writes.iter().enumerate() {
            let Write::Schedule(op) = write else { continue };
            match self.decide_schedule(op, now) {
                Ok((decision, schedule)) => {
                    let Decision { firings, notes, goes_on_from, .. } = decision;
                    let (made, known) = (Vec::new(), Vec::new());
                    let told = Scheduled { schedule, made, known, goes_on_from };
                    decided.push(Decided { place, firings, notes, told });
                }
                Err(refusal) => refused.push((place, refusal)),
            }
        }
        (decided, refused)
    }

    fn decide_schedule(
        &mut self,
        op: &ScheduleOp,
        now: Timestamp,
    ) -> Result<(Decision, Option<Arc<Schedule>>), Refusal> {
        let key = (op.tenant.clone(), op.name.clone());
        let current = self.schedules.rows.shared(&key).cloned();
        let last_job = current.as_ref().and_then(|schedule| schedule.last_job);
        let last_job = last_job.map_or(LastJob::Ended, |id| self.last_job(id));
        let decision = decide(current.as_deref(), last_job, op, now)?;
        if let Action::Trigger { job_id, .. } = op.action
            && self.job(job_id).is_some_and(|job| job.spec.tenant != op.tenant)
        {
            return Err(Refusal::JobExists { job_id });
        }
        let after = match &decision.change {
            Change::None => return Ok((decision, current)),
            Change::Put(schedule) => Some(Arc::new((**schedule).clone())),
            Change::Delete => None,
        };
        match &after {
            Some(schedule) => self.schedules.rows.put(schedule.clone()),
            None => self.schedules.rows.remove(&key),
        }
        // What this commit makes is not at its end.
        for firing in &decision.firings {
            self.schedules.last_jobs.insert(firing.enqueue.job_id, LastJob::Active);
        }
        Ok((decision, after))
    }

    fn last_job(&self, job_id: JobId) -> LastJob {
        let ended = |job: &Job| if job.state.is_end() { LastJob::Ended } else { LastJob::Active };
        let known = self.schedules.last_jobs.get(&job_id).copied();
        known.or(self.job(job_id).map(ended)).unwrap_or(LastJob::Ended)
    }

    /// Makes the jobs of an op that was decided, and notes what became of each. `is_forgotten` says that the log still
    /// speaks of a job of this id, which has been forgotten.
    pub(crate) fn fire(
        &mut self,
        decided: Decided,
        is_forgotten: &dyn Fn(JobId) -> bool,
        now: Timestamp,
    ) -> Reply {
        let Decided { firings, notes, mut told, .. } = decided;
        for firing in firings {
            let (tenant, job_id) = (firing.enqueue.tenant.clone(), firing.enqueue.job_id);
            let made: Result<Answer, Refusal> = if is_forgotten(job_id) {
                Err(Refusal::JobExists { job_id })
            } else {
                self.apply(&tenant, &Op::Enqueue(firing.enqueue.clone()), now)
            };
            match &made {
                Ok(Answer { recorded: false, .. }) => told.made.push(job_id),
                Ok(_) | Err(Refusal::JobExists { .. }) => told.known.push(job_id),
                Err(_) => {}
            }
            self.note(firing.note(&made));
        }
        notes.into_iter().for_each(|note| self.note(note));
        Reply::Scheduled(Box::new(told))
    }
}

/// The enqueues of ops that were decided, as writes whose needs can be asked for.
pub(crate) fn enqueues(decided: &[Decided]) -> Vec<Write> {
    let firings = decided.iter().flat_map(|decided| &decided.firings);
    let write = |firing: &Firing| Write::Op {
        tenant: firing.enqueue.tenant.clone(),
        op: Op::Enqueue(firing.enqueue.clone()),
    };
    firings.map(write).collect()
}

/// How many jobs an op may make, as far as can be said beforehand.
pub fn jobs_of(op: &ScheduleOp) -> usize {
    match op.action {
        Action::Backfill { .. } => Action::BACKFILL_MAX,
        Action::Fire { .. } | Action::Trigger { .. } | Action::Resume => 1,
        Action::Put(_) | Action::Pause { .. } | Action::Delete => 0,
    }
}
