//! What waits to be written, and what goes into the next batch.
//!
//! There are two lanes, each first in, first out. A write joins the lane in which the earlier writes of
//! its job wait; only a write whose job has nothing waiting goes to the lane of its own kind.
//!
//! Always true: **all waiting writes of one job stand in one lane, in the order they came.** A batch takes
//! from the front of each lane, so whatever it takes of a job comes before whatever it leaves, and in the
//! order it came. How much it takes from which lane does not matter for that, so lanes may be served
//! by urgency alone.
//!
//! Several batches may be on their way at once. A write whose job is among them is passed over, with all later
//! ones of the same job, until that batch has landed. Where claims would only wait for each other, they count as writes
//! of one job.
//!
//! No IO, no clock, no lock: this is a plain value, and tests ask it everything.

use std::collections::VecDeque;

use windlass_kernel::{
    DlqId, JobId,
    ops::{Footprint, Urgency},
};
use windlass_store::{IdMap, IdSet, Write};

/// Which writes wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// What the holder of a lease says. It is taken first: a lease does not wait.
    Lease,
    /// Everything else: new jobs, claims, what people and timers want.
    Bulk,
}

impl Lane {
    /// The lane of a write whose job has nothing waiting.
    pub(super) fn of(write: &Write) -> Self {
        match write {
            Write::RenewSession { .. } => Lane::Lease,
            Write::Claim(_) | Write::FollowUpDone { .. } | Write::Schedule(_) => Lane::Bulk,
            Write::Rule(_) | Write::Listens { .. } => Lane::Bulk,
            Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => Lane::Bulk,
            Write::Op { op, .. } => match op.footprint().urgency {
                Urgency::Lease => Lane::Lease,
                Urgency::Bulk => Lane::Bulk,
            },
        }
    }
}

/// The jobs that a write names: the one it is about, and the one it creates beside it.
pub(super) fn jobs_of(write: &Write) -> [Option<JobId>; 2] {
    let Write::Op { op, .. } = write else { return [None, None] };
    let Footprint { job, letter, makes, .. } = op.footprint();
    let job = job.or(letter.map(DlqId::job_id));
    [job, makes.id().filter(|new| Some(*new) != job)]
}

/// What all claims name, if one has to wait for the other. No job has this id, which is later than any time.
const CLAIMS: JobId = JobId::from_u128(u128::MAX);

/// What a write waits for: its jobs, or other claims.
pub(super) fn waits_for(write: &Write, claims_wait: bool) -> [Option<JobId>; 2] {
    match write {
        Write::Claim(_) if claims_wait => [Some(CLAIMS), None],
        _ => jobs_of(write),
    }
}

/// One write that waits.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    /// The jobs it names, each once.
    pub jobs: [Option<JobId>; 2],
    /// The lane of its kind.
    pub lane: Lane,
    /// How much of a batch it fills.
    pub cost: u32,
    /// The write and whoever waits for its answer.
    pub item: T,
}

impl<T> Waiting<T> {
    fn jobs(&self) -> impl Iterator<Item = JobId> + use<T> {
        self.jobs.into_iter().flatten()
    }
}

/// Everything that waits.
#[derive(Debug)]
pub(super) struct Pending<T> {
    lease: VecDeque<Waiting<T>>,
    bulk: VecDeque<Waiting<T>>,
    places: IdMap<Place>,
    /// Jobs of batches that are on their way.
    flying: IdSet,
    batch_max: u32,
}

/// A batch passes no more writes over than this: whoever says so much about jobs that are on their way can
/// wait until they have landed.
const PASS_OVER_MAX: usize = 100;

/// Where the waiting writes of a job stand.
#[derive(Debug)]
struct Place {
    lane: Lane,
    count: usize,
}

impl<T> Pending<T> {
    /// Nothing waits. A batch will cost at most `batch_max`, the first write of each lane aside: that is
    /// taken at any cost, so that a large one does not wait for ever.
    pub(super) fn new(batch_max: u32) -> Self {
        let (lease, bulk) = (VecDeque::new(), VecDeque::new());
        let (places, flying) = (IdMap::default(), IdSet::default());
        Self { lease, bulk, places, flying, batch_max }
    }

    /// So many writes of this lane are about to come.
    pub(super) fn reserve(&mut self, lane: Lane, count: usize) {
        self.lane_mut(lane).reserve(count);
        self.places.reserve(count);
    }

    /// Lets a write wait.
    pub(super) fn push(&mut self, write: Waiting<T>) {
        let lane = self.lane_for(&write);
        for job in write.jobs() {
            self.places.entry(job).or_insert(Place { lane, count: 0 }).count += 1;
        }
        self.lane_mut(lane).push_back(write);
    }

    /// The jobs of a batch that was taken are on their way: what else is said of them waits.
    pub(super) fn take_off(&mut self, batch: &[Waiting<T>]) {
        self.flying.extend(batch.iter().flat_map(Waiting::jobs));
    }

    /// A batch of these jobs has landed.
    pub(super) fn land(&mut self, jobs: impl Iterator<Item = JobId>) {
        for job in jobs {
            self.flying.remove(&job);
        }
    }

    /// Nothing is on its way any more.
    pub(super) fn land_all(&mut self) {
        self.flying.clear();
    }

    /// Does all that waits for nothing cost this much? It looks no further than it has to, or than a batch would.
    pub(super) fn costs_at_least(&self, least: u32) -> bool {
        let mut cost: u32 = 0;
        let is_free = |waiting: &&Waiting<T>| !waiting.jobs().any(|job| self.flying.contains(&job));
        let front = PASS_OVER_MAX.saturating_add(usize::try_from(least).unwrap_or(usize::MAX));
        let lanes = [&self.lease, &self.bulk].into_iter();
        least == 0
            || lanes.flat_map(|lane| lane.iter().take(front)).filter(is_free).any(|waiting| {
                cost = cost.saturating_add(waiting.cost);
                cost >= least
            })
    }

    /// Does nothing wait?
    pub(super) fn is_empty(&self) -> bool {
        self.lease.is_empty() && self.bulk.is_empty()
    }

    /// Takes the next batch; it is empty only if nothing waits, or all that waits is about jobs that are on
    /// their way.
    ///
    /// The lease lane comes first. An eighth of each batch is left to the bulk lane if anything waits
    /// there, so that neither starves the other.
    pub(super) fn next_batch(&mut self) -> Vec<Waiting<T>> {
        let for_bulk = if self.bulk.is_empty() { 0 } else { self.batch_max.div_ceil(8) };
        // Each write costs at least one, but for the first of each lane, whatever it costs.
        let most = usize::try_from(self.batch_max).unwrap_or(usize::MAX).saturating_add(2);
        let mut batch = Vec::with_capacity((self.lease.len() + self.bulk.len()).min(most));
        let used = self.take(Lane::Lease, self.batch_max - for_bulk, &mut batch);
        self.take(Lane::Bulk, self.batch_max.saturating_sub(used), &mut batch);
        batch
    }

    fn lane_for(&mut self, write: &Waiting<T>) -> Lane {
        let mut lanes =
            write.jobs().filter_map(|job| self.places.get(&job)).map(|place| place.lane);
        match (lanes.next(), lanes.next()) {
            (None, _) => write.lane,
            (Some(lane), None) => lane,
            (Some(one), Some(other)) if one == other => one,
            (Some(_), Some(_)) => {
                drop(lanes);
                self.join_lanes();
                Lane::Bulk
            }
        }
    }

    /// Makes one lane of the two. It takes a write that names two jobs, each with writes waiting in
    /// another lane, so it happens next to never, and only then it takes time.
    fn join_lanes(&mut self) {
        // No job has writes in both lanes, so any order of the lanes keeps the order of each job.
        self.lease.append(&mut self.bulk);
        std::mem::swap(&mut self.lease, &mut self.bulk);
        for place in self.places.values_mut() {
            place.lane = Lane::Bulk;
        }
    }

    /// Takes from the front of a lane: the first write at any cost, then what costs at most `room`.
    fn take(&mut self, lane: Lane, room: u32, batch: &mut Vec<Waiting<T>>) -> u32 {
        let mut used: u32 = 0;
        let mut passed_over = Vec::new();
        while let Some(next) = self.lane_mut(lane).front() {
            if used > 0 && used.saturating_add(next.cost) > room {
                break;
            }
            let next = self.lane_mut(lane).pop_front().expect("it has a front");
            if self.must_wait(&next, &passed_over) {
                passed_over.push(next);
                if passed_over.len() == PASS_OVER_MAX {
                    break;
                }
                continue;
            }
            used = used.saturating_add(next.cost);
            next.jobs().for_each(|job| self.leave(job));
            batch.push(next);
        }
        for waiting in passed_over.into_iter().rev() {
            self.lane_mut(lane).push_front(waiting);
        }
        used
    }

    /// Is a job of this write on its way, or named by one that was passed over before?
    fn must_wait(&self, next: &Waiting<T>, passed_over: &[Waiting<T>]) -> bool {
        if self.flying.is_empty() {
            return false;
        }
        next.jobs().any(|job| {
            self.flying.contains(&job)
                || passed_over.iter().any(|earlier| earlier.jobs.contains(&Some(job)))
        })
    }

    fn leave(&mut self, job: JobId) {
        let place = self.places.get_mut(&job).expect("a waiting write is counted");
        place.count -= 1;
        if place.count == 0 {
            self.places.remove(&job);
        }
    }

    fn lane_mut(&mut self, lane: Lane) -> &mut VecDeque<Waiting<T>> {
        match lane {
            Lane::Lease => &mut self.lease,
            Lane::Bulk => &mut self.bulk,
        }
    }
}

#[cfg(test)]
impl<T: Copy> Pending<T> {
    /// Nothing is kept of jobs that have left.
    pub(super) fn is_forgotten(&self) -> bool {
        self.places.is_empty()
    }

    /// Who is next in each lane.
    pub(super) fn fronts(&self) -> [Option<T>; 2] {
        [&self.lease, &self.bulk].map(|lane| lane.front().map(|waiting| waiting.item))
    }
}
