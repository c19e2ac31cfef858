//! Clocks: the machine's, and one that a test sets.
//!
//! A clock is a function, so that the engine and the stores can share one. Leases are decided by the
//! store's clock alone; the engine asks its own only for what the store need not know.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

use windlass_kernel::Timestamp;
pub use windlass_store::Ticks;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// There is one, so that it is known again.
static SYSTEM: LazyLock<Clock> = LazyLock::new(|| {
    Arc::new(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the clock that the others are given"
        )]
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Timestamp::MIN.plus(since_1970.unwrap_or_default())
    })
});

/// The clock of this machine. It may go back when somebody sets it; a store that goes by it does not.
pub fn system() -> Clock {
    SYSTEM.clone()
}

/// The monotonic clock that goes with a clock. Only that of this machine has one: a clock of one's own, such as a test
/// sets, is all there is.
pub fn ticks_of(clock: &Clock) -> Option<Ticks> {
    Arc::ptr_eq(clock, &SYSTEM).then(windlass_store::uptime)
}

/// A clock that stands still until it is set. Clones show the same time.
#[derive(Clone, Debug)]
pub struct SetClock {
    micros: Arc<AtomicI64>,
}

impl SetClock {
    /// A clock that shows this time.
    pub fn new(now: Timestamp) -> Self {
        Self { micros: Arc::new(AtomicI64::new(now.as_micros())) }
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.micros.load(Ordering::SeqCst))
    }

    /// Sets it, forward or back.
    pub fn set(&self, now: Timestamp) {
        self.micros.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Lets this much time pass. One hand moves a clock: two at once may lose a step.
    pub fn pass(&self, duration: Duration) {
        self.set(self.now().plus(duration));
    }

    /// The clock as those who only read it see it.
    pub fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_shows_our_century() {
        let now = system()();
        assert!(now > "2025-01-01T00:00:00Z".parse().unwrap());
        assert!(now < "2125-01-01T00:00:00Z".parse().unwrap());
    }

    #[test]
    fn the_system_clock_alone_has_ticks() {
        assert!(ticks_of(&system()).is_some());
        assert!(ticks_of(&SetClock::new(Timestamp::MIN).clock()).is_none());
    }

    #[test]
    fn a_set_clock_moves_only_when_it_is_told() {
        let hand = SetClock::new("2026-02-25T12:00:00Z".parse().unwrap());
        let clock = hand.clock();
        assert_eq!(clock(), clock());
        hand.pass(Duration::from_millis(1500));
        assert_eq!(clock().to_string(), "2026-02-25T12:00:01.5Z");
        hand.set(Timestamp::MIN);
        assert_eq!(clock(), Timestamp::MIN);
    }
}
