//! What time it is: the machine's clock, made steady ([`crate::steady`]).
//!
//! Whoever decides and whoever looks for what is due ask the same one, so what is due to the one is due to the
//! other.

use windlass_kernel::Timestamp;

use super::Clock;
use crate::{ClockStanding, Ticks, steady::Steady};

/// A clock that never goes back and never stands still, whatever the machine's does.
pub(super) struct Now {
    clock: Clock,
    ticks: Option<Ticks>,
    steady: Steady,
}

impl Now {
    pub(super) fn new(clock: Clock, ticks: Option<Ticks>) -> Self {
        Self { clock, ticks, steady: Steady::default() }
    }

    /// What time it is.
    pub(super) fn get(&self) -> Timestamp {
        let ticks = self.ticks.as_ref().map(|ticks| ticks());
        self.steady.read((self.clock)(), Timestamp::MIN, ticks)
    }

    /// It is no earlier than this.
    pub(super) fn at_least(&self, at: Timestamp) {
        self.steady.at_least(at);
    }

    /// What time it is, if the clock is taken as it is.
    pub(super) fn accept(&self) -> Timestamp {
        self.steady.accept();
        self.get()
    }

    /// How the clock stands now.
    pub(super) fn standing(&self) -> ClockStanding {
        self.get();
        self.steady.standing()
    }
}
