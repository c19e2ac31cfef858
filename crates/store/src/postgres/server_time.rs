//! What time the database has, as far as this process knows without asking.
//!
//! Each answer tells the time at which it was made. What has passed here since is added. So it is ahead of the
//! database by no more than the clocks drift in a few seconds, and behind by no more than an answer took. Whoever
//! relies on it has the server look whether it is so.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use windlass_kernel::Timestamp;

/// The time of the last answers.
#[derive(Default)]
pub(super) struct ServerTime {
    heard: Mutex<Option<Heard>>,
}

struct Heard {
    time: Timestamp,
    at: Instant,
    /// What was told here last: time does not go back.
    told: Timestamp,
}

/// An answer that came quickly is better than a later one that took longer, for so long.
const GOOD: Duration = Duration::from_secs(1);

/// Whoever has heard nothing for so long asks.
const KNOWN: Duration = Duration::from_secs(5);

impl ServerTime {
    /// An answer that was made at this time has come.
    pub(super) fn hear(&self, time: Timestamp) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let is_better = |it: &Heard| it.at.elapsed() > GOOD || it.time.plus(it.at.elapsed()) < time;
        if heard.as_ref().is_none_or(is_better) {
            let told = heard.as_ref().map_or(time, |it| it.told);
            #[expect(
                clippy::disallowed_methods,
                reason = "part of the store's clock: it goes on from what the server said"
            )]
            let at = Instant::now();
            *heard = Some(Heard { time, at, told });
        }
    }

    /// The time now, unless nothing was heard lately.
    pub(super) fn now(&self) -> Option<Timestamp> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = heard.as_mut().filter(|it| it.at.elapsed() < KNOWN)?;
        heard.told = heard.time.plus(heard.at.elapsed()).max(heard.told);
        Some(heard.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_what_was_heard_and_never_back() {
        let (time, start) = (ServerTime::default(), Timestamp::from_micros(1_000_000));
        assert_eq!(time.now(), None, "nobody has said anything");
        time.hear(start);
        let first = time.now().unwrap();
        assert!(first >= start);
        time.hear(start.plus(Duration::from_secs(10)));
        assert!(time.now().unwrap() >= start.plus(Duration::from_secs(10)));
        // An answer that took long says less than an earlier one that did not.
        time.hear(start);
        assert!(time.now().unwrap() >= start.plus(Duration::from_secs(10)));
    }
}
