//! The store's clock, as far as it is known here.
//!
//! The clock that decides is the store's: on PostgreSQL that of the server. The clock of this machine may be wrong, so
//! whatever is to happen after some time is told in the store's time. Each look of the timers brings it.

use std::sync::atomic::{AtomicI64, Ordering};

use windlass_kernel::Timestamp;

/// How far the store's clock is ahead of ours. Until it was heard of, both are taken to agree.
#[derive(Debug, Default)]
pub(crate) struct StoreClock {
    ahead_micros: AtomicI64,
}

impl StoreClock {
    /// The store's clock showed `now` at some time between these two of ours.
    pub(crate) fn hear(&self, asked_at: Timestamp, now: Timestamp, heard_at: Timestamp) {
        let may_agree = asked_at <= now && now <= heard_at;
        // The most that it can be ahead: what waits for a time may be late by the way of an answer, never early.
        let ahead = if may_agree { 0 } else { now.as_micros() - asked_at.as_micros() };
        self.ahead_micros.store(ahead, Ordering::Relaxed);
    }

    /// What the store's clock shows when ours shows this.
    pub(super) fn at(&self, here: Timestamp) -> Timestamp {
        let ahead = self.ahead_micros.load(Ordering::Relaxed);
        Timestamp::from_micros(here.as_micros().saturating_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_may_agree_is_trusted_and_another_one_is_followed() {
        let (clock, at) = (StoreClock::default(), Timestamp::from_micros);
        assert_eq!(clock.at(at(10_000)), at(10_000));
        for (asked_at, now, heard_at, expected) in [
            (100, 100, 100, 10_000),
            (100, 103, 107, 10_000),
            (100, 1_103, 107, 11_003),
            (5_000, 103, 5_007, 5_103),
        ] {
            clock.hear(at(asked_at), at(now), at(heard_at));
            assert_eq!(
                clock.at(at(10_000)),
                at(expected),
                "{now} between {asked_at} and {heard_at}"
            );
        }
    }
}
