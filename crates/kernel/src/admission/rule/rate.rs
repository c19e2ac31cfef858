//! Rate: how many jobs may begin in a time.
//!
//! A bucket that fills evenly. Its whole state is one instant, so it can be kept in a row and shared by all nodes,
//! and a restart gives nobody a full bucket. In any time `t` no more begin than `t × count / per + burst`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Each;
use crate::{Refusal, Timestamp};

/// How many jobs may begin in a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// This many …
    pub count: u32,
    /// … in this time.
    #[serde(rename = "per_ms", with = "crate::time::duration_ms")]
    pub per: Duration,
    /// How many may begin at once after a pause; as many as half a second brings, if nothing is said, and at least
    /// one. More lets a minute begin with more than its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Of what.
    pub each: Each,
}

/// What a rate remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateState {
    /// When the bucket is full again.
    pub full_at: Timestamp,
}

impl Default for RateState {
    fn default() -> Self {
        Self { full_at: Timestamp::MIN }
    }
}

impl Rate {
    /// The greatest rate in a second. A bucket counts microseconds, and beyond this they are too coarse to be exact.
    pub const PER_SECOND_MAX: u32 = 20_000;

    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.per < Duration::from_millis(1) || self.per > Duration::from_secs(366 * 24 * 60 * 60)
        {
            return Err(Refusal::invalid("per_ms", "must lie between 1 ms and 366 days"));
        }
        let bound = self.per.as_micros() * u128::from(Self::PER_SECOND_MAX) / 1_000_000;
        if u128::from(self.count) > bound {
            return Err(Refusal::invalid("count", "must be at most 20000 in a second"));
        }
        if self.burst.is_some_and(|burst| burst == 0 || burst > self.count.max(1)) {
            return Err(Refusal::invalid("burst", "must lie between 1 and count"));
        }
        Ok(())
    }

    /// How many the bucket holds.
    pub fn depth(&self) -> u32 {
        let half_second = u128::from(self.count) * 500_000 / self.per.as_micros().max(1);
        let usual = u32::try_from(half_second).unwrap_or(u32::MAX).clamp(1, self.count.max(1));
        if self.count == 0 { 0 } else { self.burst.unwrap_or(usual) }
    }

    /// The time in which the bucket gains one, rounded up, so that the rate is never exceeded.
    pub fn interval(&self) -> Duration {
        let micros = self.per.as_micros().div_ceil(u128::from(self.count.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).max(1))
    }

    /// How many may begin now.
    pub fn room(&self, state: RateState, now: Timestamp) -> usize {
        let missing = state.full_at.since(now).as_micros().div_ceil(self.interval().as_micros());
        usize::try_from(u128::from(self.depth()).saturating_sub(missing)).unwrap_or(usize::MAX)
    }

    /// When the next one may begin, if none may now; never, if none may ever.
    pub fn next_at(&self, state: RateState) -> Option<Timestamp> {
        let others = self.interval().saturating_mul(self.depth().checked_sub(1)?);
        Some(state.full_at.minus(others))
    }

    /// One more begins.
    pub(crate) fn take(&self, state: RateState, now: Timestamp) -> RateState {
        RateState { full_at: state.full_at.max(now).plus(self.interval()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(count: u32, per: Duration, burst: Option<u32>) -> Rate {
        Rate { count, per, burst, each: Each::Together }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_micros(1_000_000_000 + millis * 1_000)
    }

    #[test]
    fn a_bucket_holds_half_a_second_unless_told_otherwise() {
        let minute = Duration::from_secs(60);
        assert_eq!(rate(600, minute, None).depth(), 5);
        assert_eq!(rate(10, minute, None).depth(), 1);
        assert_eq!(rate(10, minute, Some(10)).depth(), 10);
        assert_eq!(rate(0, minute, None).depth(), 0, "none means none");
        assert_eq!(rate(0, minute, None).next_at(RateState::default()), None);
    }

    #[test]
    fn it_fills_up_again_evenly_and_says_when() {
        let rate = rate(10, Duration::from_secs(1), Some(2));
        let mut state = RateState::default();
        assert_eq!(rate.room(state, at(0)), 2);
        state = rate.take(rate.take(state, at(0)), at(0));
        assert_eq!(rate.room(state, at(0)), 0);
        assert_eq!(rate.next_at(state), Some(at(100)));
        assert_eq!((rate.room(state, at(99)), rate.room(state, at(100))), (0, 1));
        assert_eq!(rate.room(state, at(5_000)), 2, "it never holds more");
    }

    #[test]
    fn over_a_minute_no_more_begin_than_the_rate_and_the_burst() {
        for (count, per) in [(100, 1), (1_000, 1), (90, 60), (6_007, 60)] {
            let rate = rate(count, Duration::from_secs(per), None);
            let (mut state, mut begun) = (RateState::default(), 0u32);
            for millis in 0..60_000 {
                for _ in 0..rate.room(state, at(millis)) {
                    state = rate.take(state, at(millis));
                    begun += 1;
                }
            }
            let share = count * 60 / u32::try_from(per).unwrap();
            assert!(begun <= share + rate.depth(), "{begun} of {share}");
            assert!(f64::from(begun) <= f64::from(share) * 1.02 + 1.0, "{begun} of {share}");
            assert!(f64::from(begun) >= f64::from(share) * 0.98, "{begun} of {share}");
        }
    }

    #[test]
    fn what_nobody_can_mean_is_refused() {
        let second = Duration::from_secs(1);
        assert!(rate(20_000, second, None).check().is_ok());
        assert!(rate(20_001, second, None).check().is_err());
        assert!(rate(1, Duration::ZERO, None).check().is_err());
        assert!(rate(5, second, Some(0)).check().is_err());
        assert!(rate(5, second, Some(6)).check().is_err());
    }
}
