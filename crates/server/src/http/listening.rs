//! What workers elsewhere last said they listen to, so that it is said again only now and then.
//!
//! Names cost a caller nothing, so what is kept of them is bounded for each tenant, in workers and in bytes. A worker
//! beyond the bound gets its jobs like any other; it is not listed, and `why` does not know of it.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    sync::Mutex,
    time::{Duration, Instant},
};

use windlass_kernel::{Kind, Queue, TenantId, WorkerId};
use windlass_store::read::Listens;

/// What is known of each worker.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    workers: HashMap<WorkerId, Said>,
    shares: HashMap<Option<TenantId>, Share>,
    hasher: RandomState,
    swept_at: Instant,
}

/// What a worker said, in short.
#[derive(Debug)]
struct Said {
    /// Stands for what it said: the names themselves may be long.
    digest: u64,
    /// The first of its queues.
    queues: String,
    tenant: Option<TenantId>,
    bytes: usize,
    at: Instant,
}

/// What is kept for one tenant.
#[derive(Debug, Default)]
struct Share {
    workers: usize,
    bytes: usize,
}

/// Whoever says nothing for 90 seconds listens no longer: this is often enough.
const AGAIN: Duration = Duration::from_secs(30);
/// A worker that has not called for so long is dropped.
const KEPT_FOR: Duration = Duration::from_secs(180);
/// The most workers of a tenant that are known at once.
const WORKERS_MAX: usize = 10_000;
/// The most bytes of names that they said.
const BYTES_MAX: usize = 8 * 1024 * 1024;
/// How many queues of a worker are shown where it is greeted.
const SHOWN_MAX: usize = 5;

impl Default for Known {
    fn default() -> Self {
        let (workers, shares) = (HashMap::new(), HashMap::new());
        Self { workers, shares, hasher: RandomState::new(), swept_at: Instant::now() }
    }
}

impl Listening {
    /// Those who have come, and to which queues they listen.
    pub(crate) fn workers(&self) -> Vec<(String, String)> {
        let known = self.known.lock().expect("nobody panics with it");
        known.workers.iter().map(|(worker, it)| (worker.to_string(), it.queues.clone())).collect()
    }

    /// Does the store have to hear of it?
    pub(crate) fn is_news(&self, worker: &WorkerId, to: &Listens) -> bool {
        self.known.lock().expect("nobody panics with it").is_news(worker, to, Instant::now())
    }
}

impl Known {
    fn is_news(&mut self, worker: &WorkerId, to: &Listens, now: Instant) -> bool {
        let digest = self.hasher.hash_one((&to.queues, &to.kinds, &to.tenant));
        let is_fresh = |said: &Said| now.duration_since(said.at) < AGAIN;
        if self.workers.get(worker).is_some_and(|said| said.digest == digest && is_fresh(said)) {
            return false;
        }
        if now.duration_since(self.swept_at) >= AGAIN {
            self.sweep(now);
        }
        self.forget(worker);
        let names = to.queues.iter().map(Queue::as_str).chain(to.kinds.iter().map(Kind::as_str));
        let bytes = worker.as_str().len() + names.map(str::len).sum::<usize>();
        let share = self.shares.entry(to.tenant.clone()).or_default();
        if share.workers >= WORKERS_MAX || share.bytes + bytes > BYTES_MAX {
            return false;
        }
        share.workers += 1;
        share.bytes += bytes;
        let (queues, tenant) = (shown(&to.queues), to.tenant.clone());
        self.workers.insert(worker.clone(), Said { digest, queues, tenant, bytes, at: now });
        true
    }

    fn sweep(&mut self, now: Instant) {
        self.swept_at = now;
        let is_old = |said: &Said| now.duration_since(said.at) >= KEPT_FOR;
        let old = self.workers.iter().filter(|(_, said)| is_old(said));
        for worker in old.map(|(worker, _)| worker.clone()).collect::<Vec<_>>() {
            self.forget(&worker);
        }
    }

    fn forget(&mut self, worker: &WorkerId) {
        let Some(said) = self.workers.remove(worker) else { return };
        let share = self.shares.entry(said.tenant.clone()).or_default();
        share.workers -= 1;
        share.bytes -= said.bytes;
        if share.workers == 0 {
            self.shares.remove(&said.tenant);
        }
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

    fn listens(tenant: &str, queues: usize, bytes: usize) -> Listens {
        let queue = |number| Queue::new(format!("{number:0bytes$}")).expect("it is a name");
        let queues = (0..queues).map(queue).collect();
        Listens { queues, kinds: Vec::new(), tenant: Some(TenantId::new(tenant).unwrap()) }
    }

    fn worker(number: usize) -> WorkerId {
        WorkerId::new(format!("w{number}")).unwrap()
    }

    #[test]
    fn it_is_said_again_when_it_changes_and_now_and_then() {
        let (mut known, now) = (Known::default(), Instant::now());
        let [one, two] = [1, 2].map(|count| listens("a", count, 8));
        assert!(known.is_news(&worker(1), &one, now));
        assert!(!known.is_news(&worker(1), &one, now));
        assert!(known.is_news(&worker(1), &two, now));
        assert!(known.is_news(&worker(1), &two, now + AGAIN));
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
