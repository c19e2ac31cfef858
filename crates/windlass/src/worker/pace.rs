//! The pace of a worker: how many jobs it may claim ahead of its free slots.

use std::time::Duration;

use tokio::time::Instant;

/// How many jobs ended lately: so many may be claimed ahead, for they will be wanted soon.
#[derive(Debug, Default)]
pub(super) struct Pace {
    began: Option<Instant>,
    ended: usize,
    before: usize,
}

/// A job that is claimed ahead should start within this time.
const SOON: Duration = Duration::from_millis(100);

impl Pace {
    /// A job has ended.
    pub(super) fn note(&mut self, now: Instant) {
        let began = *self.began.get_or_insert(now);
        if now - began >= SOON {
            let is_next = now - began < SOON * 2;
            self.before = if is_next { self.ended } else { 0 };
            (self.began, self.ended) = (Some(now), 0);
        }
        self.ended += 1;
    }

    /// How many ended in the last tenth of a second that is over; none, if that is long ago.
    pub(super) fn lately(&self, now: Instant) -> usize {
        match self.began.map(|began| now - began) {
            Some(passed) if passed < SOON => self.before,
            Some(passed) if passed < SOON * 2 => self.ended,
            Some(_) | None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the pace is at a time, after jobs that ended at these, all in milliseconds.
    #[track_caller]
    fn check(ended_ms: &[u64], now_ms: u64, expected: usize) {
        let (begin, mut pace) = (Instant::now(), Pace::default());
        let at = |ms| begin + Duration::from_millis(ms);
        ended_ms.iter().for_each(|ms| pace.note(at(*ms)));
        assert_eq!(pace.lately(at(now_ms)), expected, "{ended_ms:?} at {now_ms}");
    }

    #[test]
    fn the_pace_is_what_ended_in_the_last_tenth_of_a_second_that_is_over() {
        check(&[], 0, 0);
        // It begins with the first end, and is not over yet.
        check(&[0, 10, 20], 20, 0);
        check(&[0, 10, 20], 99, 0);
        check(&[0, 10, 20], 100, 3);
        check(&[0, 10, 20], 199, 3);
        // The next one is under way.
        check(&[0, 10, 20, 110], 110, 3);
        check(&[0, 10, 20, 110, 120], 209, 3);
        check(&[0, 10, 20, 110, 120], 210, 2);
    }

    #[test]
    fn a_pace_of_long_ago_says_nothing() {
        check(&[0, 10, 20], 200, 0);
        check(&[0, 10, 20, 500], 500, 0);
        check(&[0, 10, 20, 500], 600, 1);
        check(&[0, 10, 20, 500], 700, 0);
    }
}
