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

use tokio::sync::{Notify, Semaphore, SemaphorePermit, TryAcquireError, oneshot};
use windlass_kernel::JobId;
use windlass_store::{Reply, Write};

use super::{
    Config, SubmitError,
    pending::{Lane, Pending, Waiting, waits_for},
    race_point,
    shares::{Share, Shares, tenant_of},
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
    /// The share that it takes a part of.
    share: Option<Arc<Share>>,
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
    shares: Shares,
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
    /// Why nobody is accepted any more, if so.
    closed: Option<SubmitError>,
}

impl Queue {
    pub(super) fn new(config: Config, overlaps: bool) -> Arc<Self> {
        let room = || Semaphore::new(config.queue_max as usize);
        let state = State { pending: Pending::new(config.batch_max), woken: false, closed: None };
        let (state, changed) = (Mutex::new(state), Notify::new());
        let claims_wait = AtomicBool::new(false);
        let (lease_room, bulk_room) = (room(), room());
        let shares = Shares::new(config.share());
        Arc::new(Self {
            state,
            changed,
            lease_room,
            bulk_room,
            shares,
            config,
            overlaps,
            claims_wait,
        })
    }

    /// From now on claims wait for each other, or do not. Those that wait already do as they did.
    pub(super) fn let_claims_wait(&self, claims_wait: bool) {
        self.claims_wait.store(claims_wait, Ordering::Relaxed);
    }

    /// Accepts a group of writes of one lane, in order, as soon as there is room for all of them. If the
    /// queue is closed, they are told so.
    pub(super) async fn accept(&self, group: Group) {
        let share = group.share();
        let part = match &share {
            Some(share) => share.take(group.lane, group.cost).await,
            None => None,
        };
        match self.room(group.lane).acquire_many(group.cost).await {
            Ok(room) => {
                room.forget();
                part.map(SemaphorePermit::forget).unwrap_or_default();
                self.push(group);
            }
            Err(_) => group.refuse(&self.why_closed()),
        }
    }

    /// Accepts a group of writes of one lane now, or says that there is no room. Whoever does not wait stands in nobody's
    /// way for long, so there is no share.
    pub(super) fn try_accept(&self, mut group: Group) -> Result<(), SubmitError> {
        match self.room(group.lane).try_acquire_many(group.cost) {
            Ok(room) => room.forget(),
            Err(TryAcquireError::NoPermits) => return Err(SubmitError::Full),
            Err(TryAcquireError::Closed) => return Err(self.why_closed()),
        }
        group.writes.iter_mut().for_each(|waiting| waiting.item.share = None);
        self.push(group);
        Ok(())
    }

    fn push(&self, group: Group) {
        race_point();
        let mut state = self.lock();
        if let Some(why) = state.closed.clone() {
            drop(state);
            return group.refuse(&why);
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
                let is_over = state.closed.is_some() && state.pending.is_empty();
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
        self.close_because(&SubmitError::Closed);
    }

    /// The same, for a reason that everybody is told who comes later. The first reason counts, but for one of the store:
    /// whoever hears that we are about to end sends again in a moment, which a store that has stopped does not answer.
    fn close_because(&self, why: &SubmitError) {
        let mut state = self.lock();
        if !matches!(state.closed, Some(SubmitError::Store(_))) {
            state.closed = Some(why.clone());
        }
        drop(state);
        race_point();
        self.lease_room.close();
        self.bulk_room.close();
        self.shares.close();
        self.changed.notify_one();
    }

    /// Closes, and gives this answer to whoever still waits.
    pub(super) fn end(&self, answer: &SubmitError) {
        self.close_because(answer);
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
        let share = tenant_of(&write).map(|tenant| self.shares.of(tenant));
        Waiting { jobs, lane, cost, item: Entry { write, answer, share } }
    }

    /// The most that a group may cost. A larger one would wait until the queue is empty.
    pub(super) fn group_max(&self) -> u32 {
        self.config.batch_max.min(self.config.queue_max)
    }

    fn release(&self, batch: Vec<Waiting<Entry>>) -> Batch {
        give_back_shares(&batch);
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

    fn why_closed(&self) -> SubmitError {
        self.lock().closed.clone().unwrap_or(SubmitError::Closed)
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

/// Gives back what the writes of a batch took of their shares. Those that come together are mostly of one tenant.
fn give_back_shares(batch: &[Waiting<Entry>]) {
    let is_same = |one: &Waiting<Entry>, other: &Waiting<Entry>| {
        one.lane == other.lane
            && match (&one.item.share, &other.item.share) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _ => false,
            }
    };
    for writes in batch.chunk_by(is_same) {
        if let Some(share) = &writes[0].item.share {
            share.give_back(writes[0].lane, writes.iter().map(|write| write.cost));
        }
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
        if write.lane != self.lane || cost > cost_max || !self.has_share_of(&write) {
            return Some(write);
        }
        self.cost = cost;
        self.writes.push(write);
        None
    }

    /// The share that all of its writes take a part of.
    fn share(&self) -> Option<Arc<Share>> {
        self.writes.first()?.item.share.clone()
    }

    fn has_share_of(&self, write: &Waiting<Entry>) -> bool {
        match (self.writes.first().map(|first| &first.item.share), &write.item.share) {
            (Some(Some(one)), Some(other)) => Arc::ptr_eq(one, other),
            (Some(None), None) => true,
            _ => false,
        }
    }

    fn refuse(self, error: &SubmitError) {
        self.writes.into_iter().for_each(|waiting| waiting.item.refuse(error));
    }
}

/// How many bytes of payload count as one more write.
const BYTES_PER_COST: usize = 4096;

/// A write counts as one, and as one more for each 4 KiB of text, so that one number bounds both
/// how many writes wait and how much memory they hold. A claim changes as many jobs as it wants.
fn cost(write: &Write) -> u32 {
    match write {
        Write::Op { op, .. } => {
            let bytes = op.footprint().bytes;
            u32::try_from(bytes / BYTES_PER_COST).unwrap_or(u32::MAX).saturating_add(1)
        }
        Write::Claim(wanted) => u32::try_from(wanted.max).unwrap_or(u32::MAX).max(1),
        Write::Schedule(op) => {
            let made = u32::try_from(windlass_store::commit::jobs_of(op)).unwrap_or(u32::MAX);
            made.saturating_add(1)
        }
        Write::RenewSession { .. } | Write::FollowUpDone { .. } => 1,
        Write::Rule(_) | Write::Listens { .. } => 1,
        Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => 1,
    }
}
