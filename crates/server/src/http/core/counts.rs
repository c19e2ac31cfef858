//! How many jobs there are, counted no more often than it is worth.
//!
//! A store counts by looking at every job. Of some thousand that is nothing; of a million it takes half a second, and
//! several people who look once a second would keep a core busy. So a count that took long is kept for a while.
//!
//! Always true here: counting takes no more than a fiftieth of one core from the moment on when it takes [`LONG`],
//! however many ask.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;
use windlass::Engine;
use windlass_kernel::{TenantId, Timestamp};
use windlass_store::{
    Error,
    read::{OldestReady, Scope},
};

/// A count that took so long is kept.
const LONG: Duration = Duration::from_millis(50);
/// Unless there are fewer jobs than this: then the machine was busy, and the count is cheap.
const MANY: u64 = 10_000;
/// How many times as long as it took.
const WORTH: u32 = 50;
/// The most tenants whose counts are kept.
const KEPT_MAX: usize = 1_000;

/// Jobs by queue and state, what waits longest, and when that was.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) rows: Arc<Vec<(String, String, u64)>>,
    /// For each queue of each tenant since when the job has been ready that waits longest.
    pub(crate) oldest: Arc<Vec<OldestReady>>,
    pub(crate) at: Timestamp,
}

/// What was counted last.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    kept: Mutex<HashMap<Option<TenantId>, (Counted, Instant)>>,
}

impl Counts {
    /// The counts of what a scope may see. Who asks while they are being counted waits for them.
    pub(crate) async fn read(&self, engine: &Engine, scope: &Scope) -> Result<Counted, Error> {
        let mut kept = self.kept.lock().await;
        let name = scope.tenant().cloned();
        let now = Instant::now();
        if let Some((counted, until)) = kept.get(&name)
            && now < *until
        {
            return Ok(counted.clone());
        }
        let at = engine.now();
        let rows = Arc::new(engine.store().counts(scope).await?);
        let oldest = Arc::new(engine.store().oldest_ready(scope).await?);
        let jobs: u64 = rows.iter().map(|(_, _, count)| count).sum();
        let counted = Counted { rows, oldest, at };
        let took = now.elapsed();
        kept.retain(|_, (_, until)| now < *until);
        if took >= LONG && jobs >= MANY && kept.len() < KEPT_MAX {
            kept.insert(name, (counted.clone(), Instant::now() + took * WORTH));
        }
        Ok(counted)
    }
}
