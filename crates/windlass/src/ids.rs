//! New ids: 128 bits that sort by the time they were made, with a random tail.
//!
//! The layout is that of a version 7 UUID: 48 bits of milliseconds, then 12 bits that say where in the
//! millisecond, then 62 bits of chance; the six bits in between name the version. Ids of one process
//! sort by microsecond. Within a microsecond, or when the clock goes back, their order means nothing,
//! but they still differ.

use std::{cell::RefCell, fmt, sync::Arc};

use windlass_kernel::{JobId, Timestamp, TokenId, ids::ClaimId};

use crate::clock::{self, Clock};

/// Gives 128 bits of chance.
pub type Random = Arc<dyn Fn() -> u128 + Send + Sync>;

/// The operating system's randomness.
///
/// Each thread asks for a few numbers at a time, because asking takes longer than making an id of one. No number is
/// given out twice.
pub fn system_random() -> Random {
    thread_local! {
        static ASKED: RefCell<Vec<u128>> = const { RefCell::new(Vec::new()) };
    }
    Arc::new(|| {
        ASKED.with_borrow_mut(|asked| {
            if asked.is_empty() {
                asked.extend(ask_system());
            }
            asked.pop().expect("it was just filled")
        })
    })
}

fn ask_system() -> [u128; 16] {
    let mut bytes = [[0; 16]; 16];
    #[expect(clippy::disallowed_methods, reason = "this is the chance that the others are given")]
    let filled = getrandom::fill(bytes.as_flattened_mut());
    // A system without randomness cannot make an id that nobody else makes: there is no way on.
    filled.expect("the operating system gives random bytes");
    bytes.map(u128::from_ne_bytes)
}

/// Makes ids. A clone makes ids from the same clock and the same chance.
#[derive(Clone)]
pub struct Ids {
    clock: Clock,
    random: Random,
}

impl Ids {
    /// Ids from this clock and this chance.
    pub fn new(clock: Clock, random: Random) -> Self {
        Self { clock, random }
    }

    /// Ids from the machine's clock and randomness.
    pub fn system() -> Self {
        Self::new(clock::system(), system_random())
    }

    /// The id of a new job.
    pub fn job_id(&self) -> JobId {
        JobId::from_u128(self.next_bits())
    }

    /// The id of a new claim.
    pub fn claim_id(&self) -> ClaimId {
        ClaimId::from_u128(self.next_bits())
    }

    /// The id of a new token.
    pub fn token_id(&self) -> TokenId {
        TokenId::from_u128(self.next_bits())
    }

    /// Chance alone, for what need not sort.
    pub fn random(&self) -> u128 {
        (self.random)()
    }

    /// The time by the clock that ids are made from.
    pub fn now(&self) -> Timestamp {
        (self.clock)()
    }

    fn next_bits(&self) -> u128 {
        version_7(self.now(), self.random())
    }
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ids").finish_non_exhaustive()
    }
}

fn version_7(now: Timestamp, random: u128) -> u128 {
    // A timestamp is never before 1970, and its milliseconds need 48 bits until the year 10889.
    let micros = now.as_micros().unsigned_abs();
    let (millis, micro) = (micros / 1000, micros % 1000);
    let fraction = micro * 4096 / 1000;
    let tail = random & ((1 << 62) - 1);
    u128::from(millis) << 80 | 0x7 << 76 | u128::from(fraction) << 64 | 0b10 << 62 | tail
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;
    use crate::clock::SetClock;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn an_id_is_laid_out_like_a_version_7_uuid() {
        // The example of RFC 9562, whose time is a whole millisecond.
        let id = version_7(at("2022-02-22T19:22:22Z"), 0x18C4_DC0C_0C07_398F);
        assert_eq!(format!("{id:032x}"), "017f22e279b0700098c4dc0c0c07398f");
    }

    #[test]
    fn ids_sort_by_the_microsecond_whatever_chance_says() {
        let hand = SetClock::new(at("2026-02-25T12:00:00.000998Z"));
        let (high, low): (Random, Random) = (Arc::new(|| u128::MAX), Arc::new(|| 0));
        let mut last = Ids::new(hand.clock(), high.clone()).job_id();
        for _ in 0..2000 {
            hand.pass(Duration::from_micros(1));
            assert!(Ids::new(hand.clock(), low.clone()).job_id() > last, "at {}", hand.now());
            last = Ids::new(hand.clock(), high.clone()).job_id();
        }
    }

    #[test]
    fn ids_of_one_instant_differ() {
        let ids = Ids::new(SetClock::new(Timestamp::MAX).clock(), system_random());
        let made: BTreeSet<JobId> = (0..10_000).map(|_| ids.job_id()).collect();
        assert_eq!(made.len(), 10_000);
        assert_eq!(ids.claim_id().as_u128() >> 76 & 0xf, 7);
    }
}
