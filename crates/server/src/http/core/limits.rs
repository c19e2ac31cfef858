//! The bounds that can be changed while a server runs.

use std::sync::{Arc, RwLock};

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

use crate::http::core::{app::Settings, budget::Budget, rates::Rates};

/// What holds now.
#[derive(Debug)]
pub(crate) struct Limits {
    now: RwLock<Arc<Settings>>,
    pub(crate) rates: Rates,
    /// Bytes of bodies and answers.
    pub(crate) budget: Arc<Budget>,
    places: Arc<Semaphore>,
}

impl Limits {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            rates: Rates::new(settings.calls_per_second),
            budget: Arc::new(Budget::new(settings.memory_bytes_max)),
            places: Arc::new(Semaphore::new(settings.calls_max)),
            now: RwLock::new(Arc::new(settings)),
        }
    }

    /// What holds now. What needs a restart is not read from here.
    pub(crate) fn now(&self) -> Arc<Settings> {
        self.now.read().expect("nobody panics with it").clone()
    }

    /// A place for a call, if there is one left.
    pub(crate) fn place(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.places.try_acquire()
    }

    /// From now on these hold. Calls that have their places keep them to their end.
    pub(crate) fn set(&self, settings: Settings) {
        self.rates.set(settings.calls_per_second);
        self.budget.set(settings.memory_bytes_max);
        let mut now = self.now.write().expect("nobody panics with it");
        let (before, after) = (now.calls_max, settings.calls_max);
        *now = Arc::new(settings);
        if after > before {
            self.places.add_permits(after - before);
        } else if after < before {
            let (places, fewer) = (self.places.clone(), u32::try_from(before - after));
            tokio::spawn(async move {
                let fewer = fewer.expect("a config has at most a million");
                if let Ok(gone) = places.acquire_many(fewer).await {
                    gone.forget();
                }
            });
        }
    }
}
