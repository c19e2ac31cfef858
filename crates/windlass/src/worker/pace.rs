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
