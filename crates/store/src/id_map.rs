//! Maps by job id. Ids are spread well already, so hashing them takes one multiplication.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
};

use windlass_kernel::JobId;

/// A map by job id.
pub type IdMap<V> = HashMap<JobId, V, BuildHasherDefault<IdHasher>>;

/// A set of job ids.
pub type IdSet = HashSet<JobId, BuildHasherDefault<IdHasher>>;

/// Hashes an id. A caller that chooses ids so that their hashes collide can slow one batch down,
/// and batches are bounded.
#[derive(Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u128(u128::from(*byte));
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    fn write_u128(&mut self, id: u128) {
        // The golden ratio: neighbouring ids land far apart.
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let folded = (id as u64) ^ ((id >> 64) as u64).rotate_left(32) ^ self.0;
        self.0 = folded.wrapping_mul(SPREAD);
    }
}
