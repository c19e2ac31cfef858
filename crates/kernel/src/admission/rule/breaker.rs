//! Circuit breaker: after repeated failures nothing is started for a while, then a few are tried, then more.
//!
//! While it is open, jobs wait where they are and use no retries up. When its time is over, so many may be held at
//! once as are to be tried; each that ends well doubles that, and one that fails opens the breaker again, for twice
//! as long. An execution that began before the breaker opened says nothing about the time after.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Each;
use crate::{Refusal, Timestamp};

/// When to stop, and how to begin again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// It opens after so many failures with no success in between.
    pub failures: u32,
    /// For how long, the first time.
    #[serde(rename = "open_ms", with = "crate::time::duration_ms")]
    pub open_for: Duration,
    /// For how long at the most.
    #[serde(rename = "open_ms_max", with = "crate::time::duration_ms")]
    pub open_for_max: Duration,
    /// How many are tried at once when that is over.
    pub probes: u32,
    /// Only failures with one of these codes count; all, if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<String>,
    /// Of what.
    pub each: Each,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            open_for: Duration::from_secs(30),
            open_for_max: Duration::from_secs(10 * 60),
            probes: 1,
            codes: Vec::new(),
            each: Each::Together,
        }
    }
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerState {
    /// Failures since the last success.
    pub failures: u32,
    /// When it opened, if it is not closed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
    /// Until when nothing is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_until: Option<Timestamp>,
    /// How often it opened in a row.
    pub times: u32,
    /// How many may be held at once while it closes; 0 before the first success.
    pub allowed: u32,
}

/// What became of an execution, as far as a breaker is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard<'a> {
    /// When the execution began.
    pub began_at: Timestamp,
    /// The code of its failure; none, if it ended well.
    pub failed_with: Option<&'a str>,
}

impl Breaker {
    /// When so many may be held at once, it is closed.
    const CLOSED_FROM: u32 = 64;

    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.failures == 0 || self.failures > 10_000 {
            return Err(Refusal::invalid("failures", "must lie between 1 and 10000"));
        }
        if self.open_for < Duration::from_millis(100) || self.open_for_max < self.open_for {
            return Err(Refusal::invalid(
                "open_ms",
                "must be at least 100 and at most open_ms_max",
            ));
        }
        if self.open_for_max > Duration::from_secs(24 * 60 * 60) {
            return Err(Refusal::invalid("open_ms_max", "must be at most a day"));
        }
        if self.probes == 0 || self.probes > Self::CLOSED_FROM {
            return Err(Refusal::invalid("probes", "must lie between 1 and 64"));
        }
        if self.codes.len() > 100 {
            return Err(Refusal::invalid("codes", "must be at most 100"));
        }
        Ok(())
    }

    /// Until when nothing is started, if that is so now.
    pub fn open_until(&self, state: BreakerState, now: Timestamp) -> Option<Timestamp> {
        state.open_until.filter(|until| *until > now)
    }

    /// How many may be held at once, if it is neither open nor closed.
    pub fn allowed(&self, state: BreakerState) -> Option<u32> {
        state.opened_at.map(|_| state.allowed.max(self.probes))
    }

    /// Where it stands after it heard of an execution.
    pub fn after(&self, state: BreakerState, heard: &Heard<'_>, now: Timestamp) -> BreakerState {
        let counts = |code: &str| self.codes.is_empty() || self.codes.iter().any(|it| it == code);
        let failed = match heard.failed_with {
            Some(code) if !counts(code) => return state,
            failed => failed.is_some(),
        };
        let is_old = state.opened_at.is_some_and(|opened_at| heard.began_at < opened_at);
        if is_old || self.open_until(state, now).is_some() {
            return state;
        }
        match (failed, self.allowed(state)) {
            (false, None) => BreakerState::default(),
            (false, Some(allowed)) if allowed.saturating_mul(2) >= Self::CLOSED_FROM => {
                BreakerState::default()
            }
            (false, Some(allowed)) => BreakerState { allowed: allowed * 2, failures: 0, ..state },
            (true, None) if state.failures + 1 < self.failures => {
                BreakerState { failures: state.failures + 1, ..state }
            }
            (true, _) => self.opened(state, now),
        }
    }

    fn opened(&self, state: BreakerState, now: Timestamp) -> BreakerState {
        let longer = self.open_for.saturating_mul(1 << state.times.min(20));
        BreakerState {
            failures: state.failures + 1,
            opened_at: Some(now),
            open_until: Some(now.plus(longer.min(self.open_for_max))),
            times: state.times + 1,
            allowed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + seconds * 1_000_000)
    }

    fn well(began: i64) -> Heard<'static> {
        Heard { began_at: at(began), failed_with: None }
    }

    fn badly(began: i64) -> Heard<'static> {
        Heard { began_at: at(began), failed_with: Some("DOWN") }
    }

    fn breaker() -> Breaker {
        Breaker { failures: 3, open_for: Duration::from_secs(10), ..Breaker::default() }
    }

    fn opened() -> BreakerState {
        let heard = [badly(0), badly(0), badly(0)];
        heard.iter().fold(BreakerState::default(), |state, it| breaker().after(state, it, at(1)))
    }

    #[test]
    fn it_opens_after_failures_with_no_success_in_between() {
        let breaker = breaker();
        let mut state = breaker.after(BreakerState::default(), &badly(0), at(1));
        state = breaker.after(state, &badly(0), at(1));
        assert_eq!(breaker.open_until(state, at(1)), None);
        state = breaker.after(state, &well(0), at(1));
        assert_eq!(state, BreakerState::default(), "a success makes up for them");
        assert_eq!(breaker.open_until(opened(), at(1)), Some(at(11)));
        assert_eq!(breaker.open_until(opened(), at(11)), None, "its time is over");
        assert_eq!(breaker.allowed(opened()), Some(1));
    }

    #[test]
    fn it_closes_step_by_step() {
        let (breaker, mut state) = (breaker(), opened());
        let mut allowed = Vec::new();
        while let Some(now) = breaker.allowed(state) {
            allowed.push(now);
            state = breaker.after(state, &well(12), at(13));
        }
        assert_eq!(allowed, [1, 2, 4, 8, 16, 32]);
        assert_eq!(state, BreakerState::default());
    }

    #[test]
    fn it_opens_again_for_twice_as_long() {
        let (breaker, mut state) = (breaker(), opened());
        state = breaker.after(state, &badly(12), at(13));
        assert_eq!(breaker.open_until(state, at(13)), Some(at(33)));
        state = breaker.after(state, &badly(40), at(41));
        assert_eq!(breaker.open_until(state, at(41)), Some(at(81)));
        for _ in 0..40 {
            let now = state.open_until.unwrap();
            state = breaker.after(state, &Heard { began_at: now, failed_with: Some("DOWN") }, now);
        }
        let last = state.open_until.unwrap().since(state.opened_at.unwrap());
        assert_eq!(last, breaker.open_for_max);
    }

    #[test]
    fn what_began_before_it_opened_says_nothing() {
        let (breaker, state) = (breaker(), opened());
        assert_eq!(breaker.after(state, &badly(0), at(12)), state);
        assert_eq!(breaker.after(state, &well(0), at(12)), state);
        assert_eq!(
            breaker.after(state, &badly(2), at(3)),
            state,
            "nor does what ends while it is open"
        );
    }

    #[test]
    fn only_codes_that_are_named_count() {
        let breaker = Breaker { codes: vec!["OTHER".to_owned()], ..breaker() };
        let state = breaker.after(BreakerState::default(), &badly(0), at(1));
        assert_eq!(state, BreakerState::default());
    }
}
