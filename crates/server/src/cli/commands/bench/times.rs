//! How long things took: a histogram whose size does not grow with what it counts.
//!
//! A time falls into a bucket less than one part in a hundred wide, and is reported as the upper end of its
//! bucket: never better than it was.

use std::time::Duration;

/// Each power of two is cut into this many buckets.
const PARTS: u64 = 128;

#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    counts: Vec<u64>,
}

impl Times {
    /// So many things took so long.
    pub(super) fn record(&mut self, took: Duration, count: u64) {
        let place = bucket(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += count;
    }

    pub(super) fn merge(&mut self, other: &Times) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// So many percent took this long or less. None, if nothing was recorded.
    pub(super) fn percentile(&self, percent: u64) -> Option<Duration> {
        let total: u64 = self.counts.iter().sum();
        let wanted = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_nanos(upper_end(place)))
    }
}

/// Small numbers have a bucket each; of large ones the first eight bits count.
fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(PARTS.ilog2() + 1);
    let place = u64::from(shift) * PARTS + (nanos >> shift);
    usize::try_from(place).expect("there are a few thousand buckets")
}

/// The largest number of a bucket.
fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let first = bucket - shift * PARTS;
    ((first + 1) << shift).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_falls_into_it_and_is_narrow() {
        let ends = [0, 1, 127, 128, 255, 256, 257, 999, 1_000_000, 123_456_789, u64::MAX];
        for nanos in ends {
            let end = upper_end(bucket(nanos));
            assert!(end >= nanos, "{nanos} is told as {end}");
            assert!(end - nanos <= nanos / 100, "{nanos} is told as {end}");
            assert_eq!(bucket(end), bucket(nanos), "{nanos}");
        }
        for place in 0..1000 {
            assert_eq!(bucket(upper_end(place)), place);
            assert_eq!(bucket(upper_end(place) + 1), place + 1);
        }
    }

    #[test]
    fn percentiles_count_from_the_shortest() {
        let (mut times, mut more) = (Times::default(), Times::default());
        assert_eq!(times.percentile(50), None);
        (1..=50).for_each(|nanos| times.record(Duration::from_nanos(nanos), 1));
        (51..=100).for_each(|nanos| more.record(Duration::from_nanos(nanos), 1));
        times.merge(&more);
        for (percent, nanos) in [(0, 1), (1, 1), (50, 50), (95, 95), (99, 99), (100, 100)] {
            assert_eq!(times.percentile(percent), Some(Duration::from_nanos(nanos)), "{percent}");
        }
        times.record(Duration::from_nanos(7), 900);
        assert_eq!(times.percentile(90), Some(Duration::from_nanos(7)));
    }
}
