//! The queue between those who submit and the one who commits: bounded, and closed once.
//!
//! Room is counted for each lane by itself, so a flood of new jobs never takes the room of a renewal.
//! A write takes its room before it waits, and gives it back when it is taken into a batch.
//!
//! Always true: whoever was accepted is taken by [`Queue::next_batch`] or answered by
//! [`Queue::end`]; after [`Queue::close`] nobody is accepted.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::{Notify, Semaphore, TryAcquireError, oneshot};
use windlass_kernel::{JobId, Op, Payload, ops::Outcome};
use windlass_store::{Reply, Write};

use super::{
    Config, SubmitError,
    pending::{Lane, Pending, Waiting, waits_for},
    race_point,
};

/// What a submitter is told.
pub(super) type Answer = Result<Reply, SubmitError>;

/// The way back to whoever waits for an answer.
pub(super) type Sender = oneshot::Sender<Answer>;

/// A write and whoever waits for its answer.
#[derive(Debug)]
pub(super) struct Entry {
    pub write: Write,
    pub answer: Sender,
}

impl Entry {
    /// Tells whoever waits, if anybody still does, why there is no reply.
    pub(super) fn refuse(self, error: &SubmitError) {
        let _ = self.answer.send(Err(error.clone()));
    }
}

/// Writes that go into one transaction.
#[derive(Debug)]
pub(super) struct Batch {
    pub entries: Vec<Entry>,
    /// The jobs that they name, if other batches have to know.
    pub jobs: Vec<JobId>,
}

/// What waits, and the room there is.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the one who commits: something waits, or the queue was closed.
    changed: Notify,
    lease_room: Semaphore,
    bulk_room: Semaphore,
    config: Config,
    /// Several batches may be on their way at once.
    overlaps: bool,
    /// Does a claim wait until the batch with the one before has landed?
    claims_wait: AtomicBool,
}

#[derive(Debug)]
struct State {
    pending: Pending<Entry>,
    /// Somebody wants the inbox to be promoted, whether or not anything waits here.
    woken: bool,
    closed: bool,
}

impl Queue {
    pub(super) fn new(config: Config, overlaps: bool) -> Arc<Self> {
        let room = || Semaphore::new(config.queue_max as usize);
        let state = State { pending: Pending::new(config.batch_max), woken: false, closed: false };
        let (state, changed) = (Mutex::new(state), Notify::new());
        let claims_wait = AtomicBool::new(false);
        let (lease_room, bulk_room) = (room(), room());
        Arc::new(Self { state, changed, lease_room, bulk_room, config, overlaps, claims_wait })
    }

    /// From now on claims wait for each other, or do not. Those that wait already do as they did.
    pub(super) fn let_claims_wait(&self, claims_wait: bool) {
        self.claims_wait.store(claims_wait, Ordering::Relaxed);
    }

    /// Accepts a group of writes of one lane, in order, as soon as there is room for all of them. If the
    /// queue is closed, they are told so.
    pub(super) async fn accept(&self, group: Group) {
        match self.room(group.lane).acquire_many(group.cost).await {
            Ok(room) => {
                room.forget();
                self.push(group);
            }
            Err(_) => group.refuse(&SubmitError::Closed),
        }
    }

    /// Accepts a group of writes of one lane now, or says that there is no room.
    pub(super) fn try_accept(&self, group: Group) -> Result<(), SubmitError> {
        match self.room(group.lane).try_acquire_many(group.cost) {
            Ok(room) => room.forget(),
            Err(TryAcquireError::NoPermits) => return Err(SubmitError::Full),
            Err(TryAcquireError::Closed) => return Err(SubmitError::Closed),
        }
        self.push(group);
        Ok(())
    }

    fn push(&self, group: Group) {
        race_point();
        let mut state = self.lock();
        if state.closed {
            drop(state);
            return group.refuse(&SubmitError::Closed);
        }
        state.pending.reserve(group.lane, group.writes.len());
        for waiting in group.writes {
            state.pending.push(waiting);
        }
        drop(state);
        race_point();
        self.changed.notify_one();
    }

    /// Has the next batch taken at once, also if it is empty.
    pub(super) fn wake(&self) {
        self.lock().woken = true;
        race_point();
        self.changed.notify_one();
    }

    /// The next batch, as soon as anything waits that costs at least so much together; at once if the queue was
    /// woken, even if nothing waits. None, once the queue is closed and empty.
    ///
    /// Dropping the future takes nothing.
    pub(super) async fn next_batch(&self, least: u32) -> Option<Batch> {
        loop {
            // Whoever was just answered, or came together with the first, gets a turn before: then their
            // next writes share this transaction. Nobody waits for anybody who is not about to run. Two
            // turns, because some run on other threads, and are on their way after the first.
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            let (batch, woken, is_over) = {
                let mut state = self.lock();
                let woken = std::mem::take(&mut state.woken);
                let batch = if woken || state.pending.costs_at_least(least) {
                    state.pending.next_batch()
                } else {
                    Vec::new()
                };
                if self.overlaps {
                    state.pending.take_off(&batch);
                }
                let is_over = state.closed && state.pending.is_empty();
                (batch, woken, is_over)
            };
            race_point();
            if woken || !batch.is_empty() {
                return Some(self.release(batch));
            }
            if is_over {
                return None;
            }
            // A notice that came since the look above is kept, so it is not missed.
            self.changed.notified().await;
        }
    }

    /// A batch of these jobs has landed: what else is said of them may follow.
    pub(super) fn land(&self, jobs: Vec<JobId>) {
        if !jobs.is_empty() {
            self.lock().pending.land(jobs.into_iter());
            race_point();
            self.changed.notify_one();
        }
    }

    /// Accepts nobody any more. Those who wait for room are told.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        race_point();
        self.lease_room.close();
        self.bulk_room.close();
        self.changed.notify_one();
    }

    /// Closes, and gives this answer to whoever still waits.
    pub(super) fn end(&self, answer: &SubmitError) {
        self.close();
        self.lock().pending.land_all();
        loop {
            let batch = self.lock().pending.next_batch();
            if batch.is_empty() {
                return;
            }
            batch.into_iter().for_each(|waiting| waiting.item.refuse(answer));
        }
    }

    /// A write as it waits: what it costs, and where.
    pub(super) fn waiting(&self, write: Write, answer: oneshot::Sender<Answer>) -> Waiting<Entry> {
        let cost = cost(&write).min(self.config.queue_max);
        let claims_wait = self.overlaps && self.claims_wait.load(Ordering::Relaxed);
        let (jobs, lane) = (waits_for(&write, claims_wait), Lane::of(&write));
        Waiting { jobs, lane, cost, item: Entry { write, answer } }
    }

    /// The most that a group may cost. A larger one would wait until the queue is empty.
    pub(super) fn group_max(&self) -> u32 {
        self.config.batch_max.min(self.config.queue_max)
    }

    fn release(&self, batch: Vec<Waiting<Entry>>) -> Batch {
        for lane in [Lane::Lease, Lane::Bulk] {
            let of_lane = batch.iter().filter(|waiting| waiting.lane == lane);
            self.room(lane).add_permits(of_lane.map(|waiting| waiting.cost as usize).sum());
        }
        let mut jobs = Vec::new();
        if self.overlaps {
            jobs.reserve(batch.len());
            jobs.extend(batch.iter().flat_map(|it| it.jobs).flatten());
        }
        let mut entries = Vec::with_capacity(batch.len());
        entries.extend(batch.into_iter().map(|waiting| waiting.item));
        Batch { jobs, entries }
    }

    fn room(&self, lane: Lane) -> &Semaphore {
        match lane {
            Lane::Lease => &self.lease_room,
            Lane::Bulk => &self.bulk_room,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whoever waits is answered even if something panicked under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// No group makes more room than this before it needs it.
const GROUP_ROOM_MAX: usize = 1_000;

/// Writes of one lane that are accepted together.
#[derive(Debug)]
pub(super) struct Group {
    lane: Lane,
    cost: u32,
    writes: Vec<Waiting<Entry>>,
}

impl Group {
    /// A group of one.
    pub(super) fn of(write: Waiting<Entry>) -> Self {
        Self::with_room(write, 1)
    }

    /// A group that begins with this write, and may have so many. What waits is large, and is not copied while it grows.
    pub(super) fn with_room(write: Waiting<Entry>, count: usize) -> Self {
        let mut writes = Vec::with_capacity(count.min(GROUP_ROOM_MAX));
        let (lane, cost) = (write.lane, write.cost);
        writes.push(write);
        Self { lane, cost, writes }
    }

    /// Adds a write if the group stays in one lane and within `cost_max`; gives it back if not.
    pub(super) fn add(&mut self, write: Waiting<Entry>, cost_max: u32) -> Option<Waiting<Entry>> {
        let cost = self.cost.saturating_add(write.cost);
        if write.lane != self.lane || cost > cost_max {
            return Some(write);
        }
        self.cost = cost;
        self.writes.push(write);
        None
    }

    fn refuse(self, error: &SubmitError) {
        self.writes.into_iter().for_each(|waiting| waiting.item.refuse(error));
    }
}

/// How many bytes of payload count as one more write.
const BYTES_PER_COST: usize = 4096;

/// A write counts as one, and as one more for each 4 KiB of payload, so that one number bounds both
/// how many writes wait and how much memory they hold. A claim changes as many jobs as it wants.
fn cost(write: &Write) -> u32 {
    let size = |payload: Option<&Payload>| payload.map_or(0, |payload| payload.as_str().len());
    let op = match write {
        Write::Op { op, .. } => op,
        Write::Claim(wanted) => return u32::try_from(wanted.max).unwrap_or(u32::MAX).max(1),
        Write::RenewSession { .. } | Write::FollowUpDone { .. } => return 1,
        Write::Rule(_) | Write::Listens { .. } => return 1,
        Write::Token(_) | Write::Mark { .. } => return 1,
        Write::Schedule(op) => {
            let made = u32::try_from(windlass_store::commit::jobs_of(op)).unwrap_or(u32::MAX);
            return made.saturating_add(1);
        }
    };
    let bytes = match op {
        Op::Enqueue(op) => size(Some(&op.new.payload)),
        Op::Requeue(op) => size(op.payload.as_ref()),
        Op::Renew(op) => size(op.progress.as_ref()),
        Op::Settle(op) => size(op.stats.as_ref()) + size_of_outcome(&op.outcome, size),
        _ => 0,
    };
    u32::try_from(bytes / BYTES_PER_COST).unwrap_or(u32::MAX).saturating_add(1)
}

fn size_of_outcome(outcome: &Outcome, size: impl Fn(Option<&Payload>) -> usize) -> usize {
    match outcome {
        Outcome::Succeeded { result } => size(result.as_ref()),
        Outcome::Partial { result, remaining } => size(result.as_ref()) + size(Some(remaining)),
        Outcome::Failed(_) | Outcome::Cancelled { .. } => 0,
    }
}
