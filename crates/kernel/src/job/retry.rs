//! When a failed job is tried again.
//!
//! `delay = min(max_backoff, base × 2^(retry_count − 1)) + jitter`, with jitter between 0 and 300 ms.
//! The cap comes before the jitter, so the longest delay is the cap plus 300 ms. A failure that asks for
//! a longer wait gets it; it can never make the wait shorter. Safe for any input: nothing overflows.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Refusal, Timestamp, time::is_whole_ms};

/// How the delay grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// The first delay.
    #[serde(rename = "base_ms", with = "crate::time::duration_ms")]
    pub base: Duration,
    /// No delay grows beyond this, jitter aside.
    #[serde(rename = "max_backoff_ms", with = "crate::time::duration_ms")]
    pub max_backoff: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { base: Duration::from_millis(1_000), max_backoff: Duration::from_millis(30_000) }
    }
}

/// Retries that a job has unless it says otherwise: the fourth failure is final.
pub const MAX_RETRIES_DEFAULT: u32 = 3;

impl RetryPolicy {
    /// No policy waits longer than this.
    pub const LIMIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

    /// How long to wait before retry number `retry_count`, which counts from 1.
    pub fn delay(
        &self,
        retry_count: u32,
        jitter: Jitter,
        retry_after: Option<Duration>,
    ) -> Duration {
        // Eighty doublings of a microsecond are longer than any cap, and of a year they still fit.
        let doublings = retry_count.saturating_sub(1).min(80);
        let micros = self.base.as_micros().saturating_mul(1 << doublings);
        let backoff = Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
        let backoff = backoff.min(self.max_backoff) + jitter.0;
        backoff.max(retry_after.unwrap_or(Duration::ZERO).min(Self::LIMIT))
    }

    /// When retry number `retry_count` is due.
    pub fn next_at(
        &self,
        retry_count: u32,
        jitter: Jitter,
        retry_after: Option<Duration>,
        now: Timestamp,
    ) -> Timestamp {
        now.plus(self.delay(retry_count, jitter, retry_after))
    }

    /// Refuses a policy that nobody can mean.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        if self.base > Self::LIMIT {
            return Err(Refusal::invalid("retry.base_ms", "must be at most 366 days"));
        }
        if self.max_backoff > Self::LIMIT {
            return Err(Refusal::invalid("retry.max_backoff_ms", "must be at most 366 days"));
        }
        if !is_whole_ms(self.base) || !is_whole_ms(self.max_backoff) {
            return Err(Refusal::invalid("retry", "must be in whole milliseconds"));
        }
        Ok(())
    }
}

/// A random delay between 0 and 300 ms, drawn outside and passed in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Jitter(Duration);

impl Jitter {
    /// No jitter.
    pub const NONE: Jitter = Jitter(Duration::ZERO);
    /// The largest jitter, in milliseconds.
    pub const MAX_MS: u64 = 300;

    /// Takes a jitter inside the range, and refuses any other.
    pub fn from_ms(ms: u64) -> Result<Self, Refusal> {
        if ms > Self::MAX_MS {
            return Err(Refusal::invalid("jitter_ms", "must lie between 0 and 300"));
        }
        Ok(Self(Duration::from_millis(ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_ms(retry_count: u32, jitter_ms: u64) -> u64 {
        let jitter = Jitter::from_ms(jitter_ms).unwrap();
        crate::time::as_ms(RetryPolicy::default().delay(retry_count, jitter, None))
    }

    #[test]
    fn the_delay_doubles_from_one_second_up_to_the_cap() {
        let delays: Vec<u64> = (1..=8).map(|retry| delay_ms(retry, 0)).collect();
        assert_eq!(delays, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    }

    #[test]
    fn the_cap_comes_before_the_jitter() {
        assert_eq!(delay_ms(1, 300), 1_300);
        assert_eq!(delay_ms(6, 300), 30_300);
        assert_eq!(delay_ms(u32::MAX, 300), 30_300);
    }

    #[test]
    fn jitter_outside_its_range_is_refused() {
        assert!(Jitter::from_ms(0).is_ok());
        assert!(Jitter::from_ms(300).is_ok());
        assert!(Jitter::from_ms(301).is_err());
        assert!(Jitter::from_ms(u64::MAX).is_err());
    }

    #[test]
    fn a_failure_can_lengthen_the_delay_but_never_shorten_it() {
        let policy = RetryPolicy::default();
        let delay = |after_ms| policy.delay(2, Jitter::NONE, Some(Duration::from_millis(after_ms)));
        assert_eq!(delay(1), Duration::from_millis(2_000));
        assert_eq!(delay(2_001), Duration::from_millis(2_001));
        assert_eq!(policy.delay(1, Jitter::NONE, Some(Duration::MAX)), RetryPolicy::LIMIT);
    }

    #[test]
    fn nothing_overflows() {
        let policy = RetryPolicy { base: RetryPolicy::LIMIT, max_backoff: RetryPolicy::LIMIT };
        for retry_count in [0, 1, 2, 31, 32, 33, 63, 64, 65, u32::MAX] {
            let delay = policy.delay(retry_count, Jitter::NONE, None);
            assert_eq!(delay, RetryPolicy::LIMIT, "retry {retry_count}");
            assert!(
                policy.next_at(retry_count, Jitter::NONE, None, Timestamp::MAX) == Timestamp::MAX
            );
        }
        assert_eq!(delay_ms(0, 0), 1_000);
        let long = RetryPolicy { base: Duration::from_millis(1), max_backoff: RetryPolicy::LIMIT };
        assert_eq!(long.delay(32, Jitter::NONE, None), Duration::from_millis(1 << 31));
        assert_eq!(long.delay(36, Jitter::NONE, None), RetryPolicy::LIMIT);
        let tiny = RetryPolicy { base: Duration::from_micros(1), max_backoff: RetryPolicy::LIMIT };
        assert_eq!(tiny.delay(40, Jitter::NONE, None), Duration::from_micros(1 << 39));
        assert_eq!(tiny.delay(u32::MAX, Jitter::NONE, None), RetryPolicy::LIMIT);
        let none = RetryPolicy { base: Duration::ZERO, max_backoff: RetryPolicy::LIMIT };
        assert_eq!(none.delay(u32::MAX, Jitter::NONE, None), Duration::ZERO);
    }

    #[test]
    fn an_endless_policy_is_refused() {
        let day = Duration::from_secs(86_400);
        assert!(RetryPolicy { base: day, max_backoff: RetryPolicy::LIMIT }.check().is_ok());
        assert!(RetryPolicy { base: RetryPolicy::LIMIT, max_backoff: day }.check().is_ok());
        let beyond = RetryPolicy::LIMIT + Duration::from_millis(1);
        assert!(RetryPolicy { base: beyond, max_backoff: day }.check().is_err());
        assert!(RetryPolicy { base: day, max_backoff: beyond }.check().is_err());
        let odd = day + Duration::from_micros(1);
        assert!(RetryPolicy { base: odd, max_backoff: day }.check().is_err());
        assert!(RetryPolicy { base: day, max_backoff: odd }.check().is_err());
    }
}
