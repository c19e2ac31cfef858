//! How many calls a principal may make: so many a second, and as many at once.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use super::{caller::Caller, problem::Problem};

/// What each principal has left.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: AtomicU32,
    left: Mutex<HashMap<String, (f64, Instant)>>,
}

impl Rates {
    /// The most principals that are remembered.
    const KNOWN_MAX: usize = 10_000;

    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: AtomicU32::new(per_second), left: Mutex::default() }
    }

    /// From now on so many.
    pub(crate) fn set(&self, per_second: u32) {
        self.per_second.store(per_second, Ordering::Relaxed);
    }

    /// Counts a call, or refuses it.
    pub(crate) fn check(&self, caller: &Caller) -> Result<(), Problem> {
        let per_second = f64::from(self.per_second.load(Ordering::Relaxed).max(1));
        let now = Instant::now();
        let mut left = self.left.lock().expect("nobody panics with it");
        if left.len() >= Self::KNOWN_MAX {
            left.retain(|_, (_, at)| now.duration_since(*at).as_secs() < 2);
        }
        let name = caller.principal.as_str();
        if !left.contains_key(name) {
            left.insert(name.to_owned(), (per_second, now));
        }
        let (tokens, at) = left.get_mut(name).expect("it was just put there");
        let filled = *tokens + now.duration_since(*at).as_secs_f64() * per_second;
        (*tokens, *at) = (filled.min(per_second), now);
        if *tokens < 1.0 {
            let detail = format!("{name} may make {per_second} calls a second");
            return Err(Problem { retry_after: Some(1), ..Problem::too_many(detail) });
        }
        *tokens -= 1.0;
        Ok(())
    }
}
