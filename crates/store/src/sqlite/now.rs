//! What time it is: what the clock says, and never earlier than what was said before.
//!
//! Whoever decides and whoever looks for what is due ask the same one, so what is due to the one is due to the
//! other.

use std::sync::atomic::{AtomicI64, Ordering};

use windlass_kernel::Timestamp;

use super::Clock;

/// A clock that never goes back, whatever the machine's does.
pub(super) struct Now {
    clock: Clock,
    last: AtomicI64,
}

impl Now {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, last: AtomicI64::new(Timestamp::MIN.as_micros()) }
    }

    /// What time it is.
    pub(super) fn get(&self) -> Timestamp {
        self.at_least((self.clock)())
    }

    /// The same, if it is known to be no earlier than this.
    pub(super) fn at_least(&self, at: Timestamp) -> Timestamp {
        let last = self.last.fetch_max(at.as_micros(), Ordering::SeqCst);
        at.max(Timestamp::from_micros(last))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn time_never_goes_back() {
        let shows = Arc::new(AtomicI64::new(500));
        let shown = shows.clone();
        let micros = Timestamp::from_micros;
        let now = Now::new(Arc::new(move || micros(shown.load(Ordering::SeqCst))));
        assert_eq!(now.at_least(micros(700)), micros(700));
        assert_eq!(now.get(), micros(700));
        shows.store(900, Ordering::SeqCst);
        assert_eq!(now.get(), micros(900));
        shows.store(100, Ordering::SeqCst);
        assert_eq!(now.get(), micros(900));
    }
}
