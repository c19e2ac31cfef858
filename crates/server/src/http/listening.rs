//! What workers elsewhere last said they listen to, so that it is said again only now and then.

use std::{
    collections::HashMap,
    sync::Mutex,
    time::{Duration, Instant},
};

use windlass_kernel::{Queue, WorkerId};
use windlass_store::read::Listens;

/// What is known of each worker.
#[derive(Debug, Default)]
pub(crate) struct Listening {
    known: Mutex<HashMap<WorkerId, (Listens, Instant)>>,
}

impl Listening {
    /// Whoever says nothing for 90 seconds listens no longer: this is often enough.
    const AGAIN: Duration = Duration::from_secs(30);
    /// The most workers that are remembered.
    const KNOWN_MAX: usize = 100_000;

    /// Those who have come, and to which queues they listen.
    pub(crate) fn workers(&self) -> Vec<(String, String)> {
        let known = self.known.lock().expect("nobody panics with it");
        let queues = |to: &Listens| {
            let names: Vec<&str> = to.queues.iter().map(Queue::as_str).collect();
            format!("queue {}", names.join(", "))
        };
        known.iter().map(|(worker, (to, _))| (worker.to_string(), queues(to))).collect()
    }

    /// Does the store have to hear of it?
    pub(crate) fn is_news(&self, worker: &WorkerId, to: &Listens) -> bool {
        let now = Instant::now();
        let is_fresh = |at: &Instant| now.duration_since(*at) < Self::AGAIN;
        let mut known = self.known.lock().expect("nobody panics with it");
        if known.get(worker).is_some_and(|(last, at)| last == to && is_fresh(at)) {
            return false;
        }
        if known.len() >= Self::KNOWN_MAX {
            known.retain(|_, (_, at)| is_fresh(at));
        }
        known.insert(worker.clone(), (to.clone(), now));
        true
    }
}
