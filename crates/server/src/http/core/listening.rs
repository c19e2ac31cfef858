//! What this node knows of workers elsewhere: what they last said they listen to, and when they were last heard of.
//!
//! The store hears of a worker now and then ([`Standing::WORD_EVERY`]): that is for other nodes, and for the time after a
//! restart. Between two words this node knows better. A worker is there as long as one of its claims waits; when the
//! connection breaks, the claim ends, and from then on its silence is counted.
//!
//! Names cost a caller nothing, so what is kept of them is bounded for each tenant, in workers and in bytes. A worker
//! beyond the bound gets its jobs like any other; it is not listed, and `why` does not know of it.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, futures::OwnedNotified};
use windlass_kernel::{Kind, Queue, TenantId, Timestamp, WorkerId};
use windlass_store::read::{ListeningWorker, Listens, Standing};

/// What is known of each worker.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    workers: HashMap<WorkerId, Entry>,
    shares: HashMap<Option<TenantId>, Share>,
    hasher: RandomState,
    swept_at: Instant,
}

/// One worker.
#[derive(Debug)]
struct Entry {
    /// Stands for what it said: the names themselves may be long. None, if it has only renewed here.
    digest: Option<u64>,
    /// The first of its queues.
    queues: String,
    tenant: Option<TenantId>,
    bytes: usize,
    /// When the store was last told of it.
    told_at: Instant,
    /// When it last called, or hung up.
    heard_at: Instant,
    /// How many of its claims wait.
    waiting: usize,
    /// Ends the claims that wait, when it says goodbye.
    left: Arc<Notify>,
}

/// What is kept for one tenant.
#[derive(Debug, Default)]
struct Share {
    workers: usize,
    bytes: usize,
}

/// A worker that has not called for so long is dropped.
const KEPT_FOR: Duration = Duration::from_secs(180);
/// The most workers of a tenant that are known at once.
const WORKERS_MAX: usize = 10_000;
/// The most bytes of names that they said.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// How many queues of a worker are shown where it is greeted.
const SHOWN_MAX: usize = 5;
/// If the store was told of a worker so much later than it was heard of here, another node has heard of it since.
const A_MOMENT: Duration = Duration::from_secs(1);

impl Default for Known {
    fn default() -> Self {
        let (workers, shares) = (HashMap::new(), HashMap::new());
        Self { workers, shares, hasher: RandomState::new(), swept_at: Instant::now() }
    }
}

impl Listening {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics with it")
    }

    /// Those who have come, and to which queues they listen.
    pub(crate) fn workers(&self) -> Vec<(String, String)> {
        let known = self.known();
        let said = known.workers.iter().filter(|(_, it)| it.digest.is_some());
        said.map(|(worker, it)| (worker.to_string(), it.queues.clone())).collect()
    }

    /// A worker claims. Does the store have to hear what it listens to?
    pub(crate) fn is_news(&self, worker: &WorkerId, to: &Listens) -> bool {
        self.known().is_news(worker, to, Instant::now())
    }

    /// A worker renews. Does the store have to hear that it is still there?
    pub(crate) fn is_word_due(&self, worker: &WorkerId, tenant: Option<&TenantId>) -> bool {
        self.known().is_word_due(worker, tenant, Instant::now())
    }

    /// The store has heard of the worker.
    pub(crate) fn mark_told(&self, worker: &WorkerId) {
        if let Some(entry) = self.known().workers.get_mut(worker) {
            entry.heard_at = Instant::now();
        }
    }

    /// A claim of the worker waits, until the first of these is dropped. Meanwhile the worker is there. The second is ready
    /// when it says goodbye.
    pub(crate) fn wait(&self, worker: &WorkerId) -> (WaitingClaim<'_>, OwnedNotified) {
        let mut known = self.known();
        let left = known.workers.get_mut(worker).map(|entry| {
            entry.waiting += 1;
            entry.left.clone()
        });
        let left = left.unwrap_or_default();
        // Within the lock: no goodbye comes in between.
        let has_left = left.clone().notified_owned();
        (WaitingClaim { listening: self, worker: worker.clone(), left }, has_left)
    }

    /// The worker has said goodbye: its claims that wait end, and one that comes later is news.
    pub(crate) fn forget(&self, worker: &WorkerId) {
        if let Some(entry) = self.known().forget(worker) {
            entry.left.notify_waiters();
        }
    }

    /// Adds what this node knows of when workers were last heard of. `now` is the time of the look that found them.
    pub(crate) fn add_sightings(&self, listening: &mut [ListeningWorker], now: Timestamp) {
        self.known().add_sightings(listening, (now, Instant::now()));
    }
}

/// A claim that waits.
pub(crate) struct WaitingClaim<'a> {
    listening: &'a Listening,
    worker: WorkerId,
    left: Arc<Notify>,
}

impl Drop for WaitingClaim<'_> {
    fn drop(&mut self) {
        let mut known = self.listening.known();
        // One that said goodbye and is back has an entry that knows nothing of this claim.
        let entry = known.workers.get_mut(&self.worker);
        if let Some(entry) = entry.filter(|entry| Arc::ptr_eq(&entry.left, &self.left)) {
            entry.waiting -= 1;
            entry.heard_at = Instant::now();
        }
    }
}

impl Known {
    fn is_news(&mut self, worker: &WorkerId, to: &Listens, now: Instant) -> bool {
        let digest = self.hasher.hash_one((&to.queues, &to.kinds, &to.tenant));
        if let Some(entry) = self.workers.get_mut(worker)
            && entry.digest == Some(digest)
        {
            entry.heard_at = now;
            return entry.is_due(now);
        }
        let names = to.queues.iter().map(Queue::as_str).chain(to.kinds.iter().map(Kind::as_str));
        let bytes = worker.as_str().len() + names.map(str::len).sum::<usize>();
        let entry = self.add(worker, to.tenant.as_ref(), bytes, now);
        let Some(entry) = entry else { return false };
        (entry.digest, entry.queues) = (Some(digest), shown(&to.queues));
        true
    }

    fn is_word_due(&mut self, worker: &WorkerId, tenant: Option<&TenantId>, now: Instant) -> bool {
        if let Some(entry) = self.workers.get_mut(worker) {
            entry.heard_at = now;
            return entry.is_due(now);
        }
        self.add(worker, tenant, worker.as_str().len(), now).is_some()
    }

    /// A worker that is new, or says something else than before. None, if there is no room for it.
    fn add(
        &mut self,
        worker: &WorkerId,
        tenant: Option<&TenantId>,
        bytes: usize,
        now: Instant,
    ) -> Option<&mut Entry> {
        if now.duration_since(self.swept_at) >= Standing::WORD_EVERY {
            self.sweep(now);
        }
        let before = self.forget(worker);
        let share = self.shares.entry(tenant.cloned()).or_default();
        if share.workers >= WORKERS_MAX || share.bytes + bytes > BYTES_MAX {
            return None;
        }
        share.workers += 1;
        share.bytes += bytes;
        let (waiting, left) = before.map(|it| (it.waiting, it.left)).unwrap_or_default();
        let (told_at, heard_at) = (now, now);
        let (digest, queues, tenant) = (None, String::new(), tenant.cloned());
        let entry = Entry { digest, queues, tenant, bytes, told_at, heard_at, waiting, left };
        self.workers.insert(worker.clone(), entry);
        self.workers.get_mut(worker)
    }

    fn sweep(&mut self, now: Instant) {
        self.swept_at = now;
        let is_old = |it: &Entry| it.waiting == 0 && now.duration_since(it.heard_at) >= KEPT_FOR;
        let old = self.workers.iter().filter(|(_, entry)| is_old(entry));
        for worker in old.map(|(worker, _)| worker.clone()).collect::<Vec<_>>() {
            self.forget(&worker);
        }
    }

    fn forget(&mut self, worker: &WorkerId) -> Option<Entry> {
        let entry = self.workers.remove(worker)?;
        let share = self.shares.entry(entry.tenant.clone()).or_default();
        share.workers -= 1;
        share.bytes -= entry.bytes;
        if share.workers == 0 {
            self.shares.remove(&entry.tenant);
        }
        Some(entry)
    }

    fn add_sightings(
        &self,
        listening: &mut [ListeningWorker],
        (now, instant): (Timestamp, Instant),
    ) {
        for it in listening {
            let Some(told_at) = it.last_seen_at else { continue };
            let Some(entry) = self.workers.get(&it.worker) else { continue };
            let heard_at = now.minus(instant.saturating_duration_since(entry.heard_at));
            if entry.waiting > 0 {
                it.last_seen_at = None;
            } else if told_at <= heard_at.plus(A_MOMENT) {
                (it.last_seen_at, it.unsure_for) = (Some(heard_at), Duration::ZERO);
            }
        }
    }
}

impl Entry {
    /// Does the store have to be told again? Then it is told now.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.duration_since(self.told_at) >= Standing::WORD_EVERY;
        if is_due {
            self.told_at = now;
        }
        is_due
    }
}

fn shown(queues: &[Queue]) -> String {
    let names: Vec<&str> = queues.iter().take(SHOWN_MAX).map(Queue::as_str).collect();
    let more = match queues.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("queue {}{more}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGAIN: Duration = Standing::WORD_EVERY;

    fn listens(tenant: &str, queues: usize, bytes: usize) -> Listens {
        let queue = |number| Queue::new(format!("{number:0bytes$}")).expect("it is a name");
        let queues = (0..queues).map(queue).collect();
        Listens { queues, kinds: Vec::new(), tenant: Some(TenantId::new(tenant).unwrap()) }
    }

    fn worker(number: usize) -> WorkerId {
        WorkerId::new(format!("w{number}")).unwrap()
    }

    /// What a look at the store finds of the worker: its word of so many seconds after the beginning.
    fn found(number: usize, said_after: u64) -> ListeningWorker {
        ListeningWorker {
            worker: worker(number),
            listens: Listens::default(),
            last_seen_at: Some(time(said_after)),
            unsure_for: AGAIN,
            holds: 0,
        }
    }

    fn time(seconds: u64) -> Timestamp {
        Timestamp::from_micros(0).plus(Duration::from_secs(1_000 + seconds))
    }

    #[test]
    fn it_is_said_again_when_it_changes_and_now_and_then() {
        let (mut known, now) = (Known::default(), Instant::now());
        let [one, two] = [1, 2].map(|count| listens("a", count, 8));
        assert!(known.is_news(&worker(1), &one, now));
        assert!(!known.is_news(&worker(1), &one, now));
        assert!(known.is_news(&worker(1), &two, now));
        assert!(known.is_news(&worker(1), &two, now + AGAIN));
        assert!(!known.is_word_due(&worker(1), None, now + AGAIN));
        assert!(known.is_word_due(&worker(1), None, now + 2 * AGAIN));
        assert!(!known.is_news(&worker(1), &two, now + 2 * AGAIN));
        assert!(known.is_word_due(&worker(2), two.tenant.as_ref(), now), "it only renews");
        assert!(known.is_news(&worker(2), &two, now), "now it says what it listens to");
        known.forget(&worker(1));
        assert!(known.is_news(&worker(1), &two, now + 2 * AGAIN), "after a goodbye it is news");
    }

    #[test]
    fn this_node_knows_better_than_the_store_unless_another_node_has_heard_of_it_since() {
        let (listening, began, to) = (Listening::default(), Instant::now(), listens("a", 1, 8));
        let seen = |listening: &Listening, said_after, after: u64| {
            let (mut found, now) = ([found(1, said_after)], Duration::from_secs(after));
            listening.known().add_sightings(&mut found, (time(after), began + now));
            (found[0].last_seen_at, found[0].unsure_for)
        };
        assert_eq!(seen(&listening, 0, 7), (Some(time(0)), AGAIN), "nothing is known here");
        listening.known().is_news(&worker(1), &to, began);
        assert_eq!(seen(&listening, 0, 7), (Some(time(0)), Duration::ZERO));
        listening.known().is_word_due(&worker(1), None, began + Duration::from_secs(3));
        assert_eq!(seen(&listening, 0, 7), (Some(time(3)), Duration::ZERO));
        assert_eq!(seen(&listening, 6, 7), (Some(time(6)), AGAIN), "another node was told");
        let (waiting, _) = listening.wait(&worker(1));
        assert_eq!(seen(&listening, 0, 7).0, None, "a claim of it waits");
        drop(waiting);
        assert!(seen(&listening, 0, 7).0.is_some(), "it hung up");
    }

    #[tokio::test]
    async fn a_goodbye_ends_the_claims_that_wait_and_those_of_another_life_count_for_nothing() {
        let (listening, to) = (Listening::default(), listens("a", 1, 8));
        assert!(listening.is_news(&worker(1), &to));
        let (waiting, left) = listening.wait(&worker(1));
        listening.forget(&worker(1));
        left.await;
        assert!(listening.is_news(&worker(1), &to));
        let (again, _) = listening.wait(&worker(1));
        drop(waiting);
        assert_eq!(listening.known().workers[&worker(1)].waiting, 1);
        // To listen to something else is no goodbye.
        assert!(listening.is_news(&worker(1), &listens("a", 2, 8)));
        assert_eq!(listening.known().workers[&worker(1)].waiting, 1);
        drop(again);
        assert_eq!(listening.known().workers[&worker(1)].waiting, 0);
    }

    #[test]
    fn one_tenant_fills_its_own_share_and_a_worker_that_is_gone_is_dropped() {
        let (mut known, now) = (Known::default(), Instant::now());
        let large = listens("a", 1_000, 100);
        let told = (0..200).filter(|number| known.is_news(&worker(*number), &large, now)).count();
        assert_eq!(told, BYTES_MAX / (1_000 * 100 + 4), "each has 100 kB of names");
        let small = listens("b", 1, 8);
        assert!(known.is_news(&worker(1_000), &small, now), "another tenant has its own share");
        assert!(known.is_news(&worker(300), &large, now + KEPT_FOR), "there is room again");
        assert_eq!(known.workers.len(), 1, "all others were silent for too long");
        assert_eq!(known.shares.len(), 1);
    }

    #[test]
    fn the_number_of_workers_is_bounded_too() {
        let (mut known, now) = (Known::default(), Instant::now());
        let small = listens("a", 1, 1);
        let told = (0..2 * WORKERS_MAX).filter(|it| known.is_news(&worker(*it), &small, now));
        assert_eq!(told.count(), WORKERS_MAX);
    }
}
