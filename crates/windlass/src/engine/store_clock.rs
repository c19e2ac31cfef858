//! The store's clock, as far as it is known here.
//!
//! The clock that decides is the store's: on PostgreSQL that of the server. The clock of this machine may be wrong, so
//! whatever is to happen after some time is told in the store's time. Each look of the timers brings it.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use windlass_kernel::Timestamp;

use crate::clock::Ticks;

/// How far the store's clock is ahead of ours. Until it was heard of, both are taken to agree.
#[derive(Default)]
pub(crate) struct StoreClock {
    /// A monotonic clock, if there is one: ours may be set between two looks.
    ticks: Option<Ticks>,
    heard: Mutex<Heard>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    ahead_micros: i64,
    /// What the store's clock showed, and the ticks then.
    shown: Option<(Timestamp, Duration)>,
}

/// By how much ours may go another way than the ticks before it is taken to have been set.
const SET_FROM: Duration = Duration::from_secs(1);

impl StoreClock {
    /// Nothing is known yet. Between two looks time passes by these ticks.
    pub(crate) fn new(ticks: Option<Ticks>) -> Self {
        Self { ticks, heard: Mutex::default() }
    }

    /// The store's clock showed `now` at some time between these two of ours.
    pub(crate) fn hear(&self, asked_at: Timestamp, now: Timestamp, heard_at: Timestamp) {
        let may_agree = asked_at <= now && now <= heard_at;
        // The most that it can be ahead: what waits for a time may be late by the way of an answer, never early.
        let ahead_micros = if may_agree { 0 } else { now.as_micros() - asked_at.as_micros() };
        let shown = self.ticks.as_ref().map(|ticks| (now, ticks()));
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Heard { ahead_micros, shown };
    }

    /// What the store's clock shows when ours shows this.
    pub(crate) fn at(&self, here: Timestamp) -> Timestamp {
        let Heard { ahead_micros, shown } =
            *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let by_ours = Timestamp::from_micros(here.as_micros().saturating_add(ahead_micros));
        let Some((ticks, (shown, at))) = self.ticks.as_ref().zip(shown) else { return by_ours };
        let by_ticks = shown.plus(ticks().saturating_sub(at));
        let is_set = by_ours.since(by_ticks).max(by_ticks.since(by_ours)) > SET_FROM;
        if is_set { by_ticks } else { by_ours }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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

    #[test]
    fn a_clock_that_is_set_between_two_looks_misleads_nobody() {
        let ticks = Arc::new(Mutex::new(Duration::from_secs(100)));
        let shown = ticks.clone();
        let clock = StoreClock::new(Some(Arc::new(move || *shown.lock().unwrap())));
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        assert_eq!(clock.at(at(500)), at(500), "nothing was heard");
        clock.hear(at(1_000), at(1_000), at(1_000));
        *ticks.lock().unwrap() += Duration::from_secs(2);
        assert_eq!(clock.at(at(1_002)), at(1_002));
        // Drift and small steps are no matter.
        let half = Timestamp::from_micros(1_002_500_000);
        assert_eq!(clock.at(half), half);
        for set in [100, 90_000] {
            assert_eq!(clock.at(at(set)), at(1_002), "ours was set to {set}");
        }
    }
}
