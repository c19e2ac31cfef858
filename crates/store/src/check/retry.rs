//! When a retry is due, worked out a second time from the design.
//!
//! `min(cap, base × 2^(n − 1))`, and up to 300 ms of jitter. A failure may ask for a longer wait.

use windlass_kernel::{Failure, RetryPolicy};

const JITTER_MS: u128 = 300;
/// No failure can ask for a longer wait: 366 days.
const ASKED_MS_MAX: u128 = 366 * 24 * 60 * 60 * 1_000;

/// The shortest and the longest delay of retry number `number`, in microseconds.
pub(super) fn delay_us(policy: &RetryPolicy, number: u32, failure: &Failure) -> (u128, u128) {
    let (base, cap) = (policy.base.as_millis(), policy.max_backoff.as_millis());
    let doubled = if base == 0 || number > 64 {
        // Beyond every cap, or nothing at all.
        if base == 0 { 0 } else { u128::MAX }
    } else {
        base.saturating_mul(1 << number.saturating_sub(1))
    };
    let backoff = doubled.min(cap);
    let asked = failure.retry_after.map_or(0, |asked| asked.as_millis()).min(ASKED_MS_MAX);
    (backoff.max(asked) * 1_000, (backoff + JITTER_MS).max(asked) * 1_000)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_cap_and_a_failure_may_lengthen_it() {
        let delay_ms = |number, after: Option<u64>| {
            let retry_after = after.map(Duration::from_millis);
            let failure = Failure { retry_after, ..Failure::transient("BUSY", "later") };
            let (least, most) = delay_us(&RetryPolicy::default(), number, &failure);
            (least / 1_000, most / 1_000)
        };
        assert_eq!(delay_ms(1, None), (1_000, 1_300));
        assert_eq!(delay_ms(3, None), (4_000, 4_300));
        assert_eq!(delay_ms(6, None), (30_000, 30_300));
        assert_eq!(delay_ms(u32::MAX, None), (30_000, 30_300));
        assert_eq!(delay_ms(1, Some(1_100)), (1_100, 1_300));
        assert_eq!(delay_ms(1, Some(60_000)), (60_000, 60_000));
    }
}
