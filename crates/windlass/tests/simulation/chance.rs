//! Chance from a seed, for everything that happens to a cluster.

use std::{sync::Arc, time::Duration};

use windlass::{ids::Random, testing::seeded};

/// Draws from one seed. Clones draw from the same.
#[derive(Clone)]
pub(crate) struct Chance {
    random: Random,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: seeded(seed) }
    }

    /// A number below this one.
    pub(crate) fn below(&self, end: u64) -> u64 {
        u64::try_from((self.random)() % u128::from(end)).unwrap()
    }

    /// A place among so many.
    pub(crate) fn index(&self, count: usize) -> usize {
        usize::try_from(self.below(count as u64)).unwrap()
    }

    /// So many times in a hundred.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn ms(&self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }

    /// Chance of its own for somebody else.
    pub(crate) fn fork(&self) -> Self {
        Self::new(self.below(u64::MAX))
    }

    /// The same, as an engine takes it.
    pub(crate) fn random(&self) -> Random {
        let chance = self.clone();
        Arc::new(move || (chance.random)())
    }
}
