//! What a worker has in hand: jobs that wait in its local queue, run, or are being reported.
//!
//! Plain bookkeeping behind one lock. Time comes in as an argument.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};
use windlass_kernel::{Epoch, JobId, TenantId};
use windlass_store::{Granted, IdMap, IdSet};

use super::{
    notice::{Notice, Notices},
    pace::Pace,
};

/// How much a worker does at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    /// How many handlers run.
    pub(super) concurrency: usize,
    /// How many jobs wait in the local queue at the most.
    pub(super) ahead_max: usize,
    /// How many jobs of one tenant it has in hand at the most.
    pub(super) tenant_max: usize,
    /// How many reports are on their way at the most: the store is slower than the handlers.
    pub(super) reports_max: usize,
}

/// What a worker has in hand, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// How many handlers run.
    pub(super) running: usize,
    /// How many jobs wait in the local queue.
    pub(super) queued: usize,
    /// How many reports are on their way.
    pub(super) reporting: usize,
    /// How many handlers returned lately, in a tenth of a second.
    pub(super) pace: usize,
    /// When the first job of the local queue will have waited for too long.
    pub(super) overdue_at: Option<Instant>,
}

/// What a worker has in hand.
#[derive(Debug)]
pub(crate) struct Executions {
    slots: Slots,
    state: Mutex<State>,
    /// Something ended.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    by_job: IdMap<Execution>,
    /// The local queue: what waits, and since when.
    queue: VecDeque<(Instant, Granted)>,
    running: usize,
    reporting: usize,
    grants: u64,
    /// Does somebody want to know when there is room?
    calls: bool,
    /// Until when the last renewal keeps all leases of before it.
    renewed: Option<(u64, Instant)>,
    /// Is a claim on its way, whose jobs are not known here yet?
    claiming: bool,
    /// What the last renewal said is held, and is not known here.
    strangers: IdSet,
    pace: Pace,
}

#[derive(Debug)]
struct Execution {
    epoch: Epoch,
    tenant: TenantId,
    phase: Phase,
    notices: Notices,
    /// Its place among the grants: a renewal that was sent before it says nothing about it.
    grant: u64,
    /// When its claim was called.
    claimed_at: Instant,
    /// When its own lease runs out, if no renewal keeps it.
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// In the local queue.
    Waits,
    Runs,
    /// Its handler has returned, and the store is told.
    Reports,
}

/// A job of the local queue that has not started within this time is given back: those before it take longer than
/// was thought.
const AHEAD_MAX: Duration = Duration::from_secs(1);

impl Executions {
    pub(super) fn new(slots: Slots) -> Self {
        Self { slots, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn slots(&self) -> Slots {
        self.slots
    }

    /// What is in hand now. From here on each end wakes the worker, if it `calls` for that or has jobs
    /// in its local queue.
    ///
    /// Both under one lock: an end in between would wake nobody, and its slot would stay empty.
    pub(super) fn load(&self, calls: bool, now: Instant) -> Load {
        let mut state = self.state();
        state.calls = calls || !state.queue.is_empty();
        Load {
            running: state.running,
            queued: state.queue.len(),
            reporting: state.reporting,
            pace: state.pace.lately(now),
            overdue_at: state.queue.front().map(|(since, _)| *since + AHEAD_MAX),
        }
    }

    /// The tenants that have as many slots as they may, and how many jobs may be claimed so that no other has more.
    pub(super) fn tenants(&self) -> (Vec<TenantId>, usize) {
        let max = self.slots.tenant_max;
        if max >= self.slots.concurrency.saturating_add(self.slots.ahead_max) {
            return (Vec::new(), usize::MAX);
        }
        let state = self.state();
        let mut held: BTreeMap<&TenantId, usize> = BTreeMap::new();
        for execution in state.by_job.values().filter(|it| it.phase != Phase::Reports) {
            *held.entry(&execution.tenant).or_default() += 1;
        }
        let full = held.iter().filter(|(_, count)| **count >= max);
        let full = full.map(|(tenant, _)| (*tenant).clone()).collect();
        let most = held.values().copied().filter(|count| *count < max).max().unwrap_or(0);
        (full, max - most)
    }

    /// A claim is sent, or all that it brought is known here.
    pub(super) fn set_claiming(&self, claiming: bool) {
        self.state().claiming = claiming;
    }

    /// Is nothing in hand?
    pub(super) fn is_idle(&self) -> bool {
        self.state().by_job.is_empty()
    }

    /// A job was granted that is started, and runs from now on; or that waits in the local queue.
    ///
    /// If the same job is here under an older epoch, that execution has lost its lease.
    pub(super) fn add(
        &self,
        granted: &Granted,
        started: bool,
        claimed_at: Instant,
        lease: Duration,
    ) -> Notices {
        let notices = Notices::default();
        let (job_id, epoch) = (granted.job.id, granted.job.epoch);
        let mut state = self.state();
        let grant = state.grants;
        state.grants += 1;
        let phase = if started { Phase::Runs } else { Phase::Waits };
        let until = claimed_at + lease;
        let tenant = granted.job.spec.tenant.clone();
        let execution =
            Execution { epoch, tenant, phase, notices: notices.clone(), grant, claimed_at, until };
        if let Some(old) = state.by_job.insert(job_id, execution) {
            state.forget(&old);
            old.notices.raise(Notice::LeaseLost);
        }
        if started {
            state.running += 1;
        } else {
            state.queue.push_back((claimed_at, granted.clone()));
        }
        notices
    }

    /// The next job of the local queue, if a slot is free: it takes the slot.
    pub(super) fn next(&self) -> Option<(Granted, Notices)> {
        let mut state = self.state();
        if state.running >= self.slots.concurrency {
            return None;
        }
        while let Some((_, granted)) = state.queue.pop_front() {
            if let Some(execution) = state.waiting(&granted) {
                execution.phase = Phase::Runs;
                let notices = execution.notices.clone();
                state.running += 1;
                return Some((granted, notices));
            }
        }
        None
    }

    /// Takes what has waited for too long in the local queue, to be given back.
    pub(super) fn take_overdue(&self, now: Instant) -> Vec<Granted> {
        self.take_queued(|since| since + AHEAD_MAX <= now)
    }

    /// Takes the whole local queue, to be given back.
    pub(super) fn take_queue(&self) -> Vec<Granted> {
        self.take_queued(|_| true)
    }

    fn take_queued(&self, is_meant: impl Fn(Instant) -> bool) -> Vec<Granted> {
        let (mut state, mut taken) = (self.state(), Vec::new());
        while let Some((_, granted)) = state.queue.pop_front_if(|(since, _)| is_meant(*since)) {
            if state.waiting(&granted).is_some() {
                state.by_job.remove(&granted.job.id);
                taken.push(granted);
            }
        }
        taken
    }

    /// Its handler has returned: its slot is free. False, if its lease is lost and nothing may be reported.
    pub(super) fn begin_report(&self, job_id: JobId, epoch: Epoch, now: Instant) -> bool {
        let mut state = self.state();
        state.pace.note(now);
        let Some(execution) = state.by_job.get_mut(&job_id) else { return false };
        if execution.epoch != epoch || execution.phase != Phase::Runs {
            return false;
        }
        execution.phase = Phase::Reports;
        state.running -= 1;
        state.reporting += 1;
        self.tell(state);
        true
    }

    /// It is over. It gives back when it was claimed, if it was not lost before.
    pub(super) fn end(&self, job_id: JobId, epoch: Epoch) -> Option<Instant> {
        let mut state = self.state();
        state.by_job.get(&job_id).filter(|execution| execution.epoch == epoch)?;
        let execution = state.by_job.remove(&job_id)?;
        state.forget(&execution);
        self.tell(state);
        Some(execution.claimed_at)
    }

    /// Someone wants this execution to be cancelled.
    pub(crate) fn cancel(&self, job_id: JobId, epoch: Epoch) {
        if let Some(execution) = self.state().by_job.get(&job_id)
            && execution.epoch == epoch
        {
            execution.notices.raise(Notice::Cancelled);
        }
    }

    /// This execution has lost its lease, unless it is just reporting: then it will hear so.
    pub(crate) fn lose(&self, job_id: JobId, epoch: Epoch) {
        let mut state = self.state();
        let Some(execution) = state.by_job.get(&job_id) else { return };
        if execution.epoch > epoch || execution.phase == Phase::Reports {
            return;
        }
        state.lose(job_id);
        self.tell(state);
    }

    /// What a renewal that is sent now can speak of.
    pub(super) fn grants(&self) -> u64 {
        self.state().grants
    }

    /// A renewal was answered: these are held, these are to be cancelled. What is not held any more is lost.
    ///
    /// Gives back what is held, and was already the last time, though nobody here knows of it.
    pub(super) fn renewed(
        &self,
        grants: u64,
        until: Instant,
        held: &[JobId],
        cancelled: &[JobId],
    ) -> Vec<JobId> {
        let held: IdSet = held.iter().copied().collect();
        let mut state = self.state();
        state.renewed = Some((grants, until));
        for job_id in cancelled {
            if let Some(execution) = state.by_job.get(job_id) {
                execution.notices.raise(Notice::Cancelled);
            }
        }
        let is_lost = |(job_id, it): (&JobId, &Execution)| {
            let lost = it.phase != Phase::Reports && it.grant < grants && !held.contains(job_id);
            lost.then_some(*job_id)
        };
        let lost: Vec<JobId> = state.by_job.iter().filter_map(is_lost).collect();
        let strangers = held.into_iter().filter(|job_id| !state.by_job.contains_key(job_id));
        let strangers: IdSet = strangers.collect();
        let known_before = std::mem::replace(&mut state.strangers, strangers.clone());
        self.lose_all(state, &lost);
        strangers.into_iter().filter(|job_id| known_before.contains(job_id)).collect()
    }

    /// Is it certain that nobody here runs the job, or is about to?
    pub(super) fn is_stranger(&self, job_id: JobId) -> bool {
        let state = self.state();
        !state.claiming && !state.by_job.contains_key(&job_id)
    }

    /// When the next lease runs out of those that can still be saved, as far as is known here.
    pub(super) fn next_lapse(&self, now: Instant) -> Option<Instant> {
        let state = self.state();
        let all = state.by_job.values().map(|execution| state.until(execution));
        all.filter(|until| *until > now).min()
    }

    /// Leases that have run out can no longer be saved: those executions are lost, reports and all.
    pub(super) fn lose_lapsed(&self, now: Instant) {
        let state = self.state();
        let lapsed = |(job_id, it): (&JobId, &Execution)| {
            (it.phase != Phase::Reports && state.until(it) <= now).then_some(*job_id)
        };
        let lost: Vec<JobId> = state.by_job.iter().filter_map(lapsed).collect();
        self.lose_all(state, &lost);
    }

    /// Has the lease of this execution run out, as far as is known here?
    pub(super) fn has_lapsed(&self, job_id: JobId, epoch: Epoch, now: Instant) -> bool {
        let state = self.state();
        let execution = state.by_job.get(&job_id).filter(|execution| execution.epoch == epoch);
        execution.is_none_or(|execution| state.until(execution) <= now)
    }

    /// Tells all that run.
    pub(super) fn tell_all(&self, notice: Notice) {
        for execution in self.state().by_job.values() {
            execution.notices.raise(notice);
        }
    }

    /// Waits until nothing is in hand.
    pub(super) async fn idle(&self) {
        loop {
            {
                let mut state = self.state();
                if state.by_job.is_empty() {
                    return;
                }
                state.calls = true;
            }
            self.changed().await;
        }
    }

    /// Waits until something has ended.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lose_all(&self, mut state: MutexGuard<'_, State>, lost: &[JobId]) {
        for job_id in lost {
            state.lose(*job_id);
        }
        self.tell(state);
    }

    fn tell(&self, state: MutexGuard<'_, State>) {
        let calls = state.calls;
        drop(state);
        if calls {
            self.changed.notify_one();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn until(&self, execution: &Execution) -> Instant {
        match self.renewed {
            Some((grants, until)) if execution.grant < grants => until.max(execution.until),
            _ => execution.until,
        }
    }

    /// The execution of a job of the local queue; none, if it was lost meanwhile.
    fn waiting(&mut self, granted: &Granted) -> Option<&mut Execution> {
        let execution = self.by_job.get_mut(&granted.job.id)?;
        let waits = execution.epoch == granted.job.epoch && execution.phase == Phase::Waits;
        waits.then_some(execution)
    }

    /// What is lost is forgotten at once, so that its slot is free; its task ends by itself.
    fn lose(&mut self, job_id: JobId) {
        if let Some(execution) = self.by_job.remove(&job_id) {
            self.forget(&execution);
            execution.notices.raise(Notice::LeaseLost);
        }
    }

    fn forget(&mut self, execution: &Execution) {
        match execution.phase {
            // It stays in the queue until its turn comes, and is passed over then.
            Phase::Waits => {}
            Phase::Runs => self.running -= 1,
            Phase::Reports => self.reporting -= 1,
        }
    }
}

#[cfg(test)]
mod tests;
