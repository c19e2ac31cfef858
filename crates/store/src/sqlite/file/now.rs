//! What time it is: the machine's clock, made steady ([`crate::steady`]).
//!
//! The writer, which decides, and the readers, which look for due alarms, ask the same clock: what
//! a reader finds due, the writer finds due as well.

use windlass_kernel::Timestamp;

use crate::{ClockStanding, Ticks, sqlite::Clock, steady::Steady};

/// A clock that never goes back and never stands still, whatever the machine's does.
pub(crate) struct Now {
    clock: Clock,
    ticks: Option<Ticks>,
    steady: Steady,
}

impl Now {
    pub(crate) fn new(clock: Clock, ticks: Option<Ticks>) -> Self {
        Self { clock, ticks, steady: Steady::default() }
    }

    /// What time it is.
    pub(crate) fn get(&self) -> Timestamp {
        let ticks = self.ticks.as_ref().map(|ticks| ticks());
        self.steady.read((self.clock)(), Timestamp::MIN, ticks)
    }

    /// It is no earlier than this.
    pub(crate) fn at_least(&self, at: Timestamp) {
        self.steady.at_least(at);
    }

    /// What time it is, if the clock is taken as it is.
    pub(crate) fn accept(&self) -> Timestamp {
        self.steady.accept();
        self.get()
    }

    /// How the clock stands now.
    pub(crate) fn standing(&self) -> ClockStanding {
        self.get();
        self.steady.standing()
    }
}
