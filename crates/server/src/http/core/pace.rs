//! The pace of an operation on many: so many a second at the most, and no slower than that because of how they come.
//!
//! Always true here: over any time no more is let through than the rate says, and a moment. What was not used while an
//! operation looked for more is not made up for by a burst.

use std::time::{Duration, Instant};

/// Says how long to wait.
#[derive(Debug)]
pub(crate) struct Pace {
    per_second: u32,
    /// When what was let through last is paid for.
    free_at: Instant,
}

impl Pace {
    pub(crate) fn new(per_second: u32, now: Instant) -> Self {
        Self { per_second: per_second.max(1), free_at: now }
    }

    /// How long these have to wait for those before them. However few they are, they cost what they are, and the time
    /// that it took to find them counts.
    pub(crate) fn take(&mut self, count: usize, now: Instant) -> Duration {
        let starts_at = self.free_at.max(now);
        self.free_at =
            starts_at + Duration::from_secs(1).mul_f64(count as f64 / f64::from(self.per_second));
        starts_at.duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it takes to let `total` through in parts of `part`, each of which takes so long to find.
    fn took(per_second: u32, total: usize, part: usize, finding: Duration) -> Duration {
        let begin = Instant::now();
        let (mut now, mut pace) = (begin, Pace::new(per_second, begin));
        for _ in 0..total / part {
            now += finding;
            now += pace.take(part, now);
        }
        now - begin
    }

    #[test]
    fn the_pace_is_kept_however_few_are_found_at_once() {
        let second = Duration::from_secs(1);
        for part in [125, 500, 1_000] {
            // Finding them takes half of their time.
            let finding = second.mul_f64(part as f64 / 20_000.0);
            let time = took(10_000, 100_000, part, finding).as_secs_f64();
            assert!((9.8..=10.1).contains(&time), "{time} s in parts of {part}");
        }
    }

    #[test]
    fn no_more_goes_through_than_the_rate_says_after_a_long_search() {
        let begin = Instant::now();
        let mut pace = Pace::new(100, begin);
        assert_eq!(pace.take(10, begin), Duration::ZERO);
        let late = begin + Duration::from_secs(60);
        assert_eq!(pace.take(10, late), Duration::ZERO);
        assert_eq!(pace.take(10, late), Duration::from_millis(100), "a minute is not made up for");
        assert_eq!(pace.take(10, late), Duration::from_millis(200));
    }
}
