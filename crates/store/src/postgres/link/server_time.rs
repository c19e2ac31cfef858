//! What time it is: the database's clock, made steady ([`crate::steady`]) by this machine's ticks.
//!
//! All nodes follow the one clock of the database, and none is ever behind the newest commit: so nodes differ by no more
//! than their ticks drift while that clock is off, and what one has written is in nobody's future. A node that starts
//! takes the database's clock as it is, or the time of the newest commit if that is later.
//!
//! Each answer tells the time at which it was made, and what has passed here since is added
//! ([`ServerTime::guess`]): it is ahead of the database by no more than the clocks drift in a few
//! seconds, and behind by no more than an answer took. A commit that relies on the guess has the
//! server check it.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use windlass_kernel::Timestamp;

use crate::{ClockStanding, Ticks, postgres::Clock, steady::Steady};

/// The time of the database, as this node knows it.
#[derive(Default)]
pub(crate) struct ServerTime {
    /// A clock in place of the database's.
    clock: Option<Clock>,
    ticks: Option<Ticks>,
    steady: Steady,
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

/// If no answer has come for so long, the server is asked for its time.
const KNOWN: Duration = Duration::from_secs(5);

impl ServerTime {
    /// The database's time, or that of a clock in its place.
    pub(crate) fn new(clock: Option<Clock>, ticks: Option<Ticks>) -> Self {
        let ticks = ticks.or_else(|| clock.is_none().then(crate::uptime));
        Self { clock, ticks, ..Self::default() }
    }

    /// Does the database's clock count, and not another in its place?
    pub(crate) fn is_the_servers(&self) -> bool {
        self.clock.is_none()
    }

    /// What time it is: the server's clock shows `shown`, and the newest that is known to be written is of `last`.
    pub(crate) fn read(&self, shown: Timestamp, last: Option<Timestamp>) -> Timestamp {
        let shown = match &self.clock {
            Some(clock) => clock(),
            None => {
                self.hear(shown);
                shown
            }
        };
        self.steady.read(shown, last.unwrap_or(Timestamp::MIN), self.ticks())
    }

    /// Somebody says that the clock is right: the next reading takes it as it is.
    pub(crate) fn accept(&self) {
        self.steady.accept();
    }

    /// How the clock stood at the last reading.
    pub(crate) fn standing(&self) -> ClockStanding {
        self.steady.standing()
    }

    /// What time statements of the first trip have to go by. None, if that is the server's.
    pub(crate) fn instead(&self) -> Option<Timestamp> {
        let steady = self.steady.without_clock(self.ticks());
        steady.or_else(|| self.clock.as_ref().map(|clock| clock()))
    }

    /// The time now without a question, unless nothing was heard lately or the clock is off.
    pub(crate) fn guess(&self) -> Option<Timestamp> {
        if self.steady.without_clock(self.ticks()).is_some() {
            return None;
        }
        if let Some(clock) = &self.clock {
            return Some(clock());
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let heard = heard.as_mut().filter(|it| it.at.elapsed() < KNOWN)?;
        heard.told = heard.time.plus(heard.at.elapsed()).max(heard.told);
        Some(heard.told)
    }

    /// An answer that was made at this time has come.
    fn hear(&self, time: Timestamp) {
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

    fn ticks(&self) -> Option<Duration> {
        self.ticks.as_ref().map(|ticks| ticks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_what_was_heard_and_never_back() {
        let (time, start) = (ServerTime::default(), Timestamp::from_micros(1_000_000));
        assert_eq!(time.guess(), None, "nobody has said anything");
        time.read(start, None);
        let first = time.guess().unwrap();
        assert!(first >= start);
        time.read(start.plus(Duration::from_secs(10)), None);
        assert!(time.guess().unwrap() >= start.plus(Duration::from_secs(10)));
        // An answer that took long says less than an earlier one that did not.
        time.read(start, None);
        assert!(time.guess().unwrap() >= start.plus(Duration::from_secs(10)));
    }

    #[test]
    fn nobody_guesses_while_the_clock_is_off() {
        let (time, start) = (ServerTime::new(None, None), Timestamp::from_micros(1 << 50));
        time.read(start, None);
        assert!(time.guess().is_some() && time.instead().is_none());
        let hour = Duration::from_secs(3_600);
        time.read(start.plus(hour), None);
        assert!(time.guess().is_none() && time.instead().is_some_and(|it| it < start.plus(hour)));
        // Another node has taken it.
        let now = time.read(start.plus(hour), Some(start.plus(hour)));
        assert!(now == start.plus(hour) && time.instead().is_none());
    }
}
