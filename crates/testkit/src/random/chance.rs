//! Chance that repeats: the same seed always draws the same numbers.

use std::time::Duration;

/// A stream of numbers made from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw() % limit
    }

    /// True in this many cases out of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these; none if there are none.
    pub fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let count = u64::try_from(among.len()).expect("a small slice");
        if count == 0 {
            return None;
        }
        among.get(usize::try_from(self.below(count)).expect("an index"))
    }

    /// One of these, each as likely as its weight says.
    pub fn weighted<T: Copy>(&mut self, among: &[(u64, T)]) -> T {
        let mut left = self.below(among.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in among {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        unreachable!("the weights cover every draw")
    }

    /// Some value in this many cases out of a hundred.
    pub fn maybe<T>(&mut self, percent: u64, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.percent(percent) { Some(value(self)) } else { None }
    }

    /// A duration between these, in milliseconds.
    pub fn ms(&mut self, min: u64, max: u64) -> Duration {
        Duration::from_millis(min + self.below(max - min + 1))
    }
}
