//! The seed of a random test: another one in each run, printed, and given again to repeat a run.

use std::{
    env,
    hash::{BuildHasher, RandomState},
};

/// The seed of this run, as the bytes that a generator wants. `WINDLASS_SEED` repeats a run.
///
/// # Panics
/// If `WINDLASS_SEED` is not a number.
pub fn seed() -> [u8; 32] {
    let given = env::var("WINDLASS_SEED").ok();
    let given = given.map(|text| text.parse().expect("WINDLASS_SEED is a number"));
    let seed: u64 = given.unwrap_or_else(|| RandomState::new().hash_one("seed"));
    println!("WINDLASS_SEED={seed} repeats this run");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    bytes
}

/// How many cases a random test runs: twenty times as many if `WINDLASS_DEEP` is set.
pub fn cases(usual: u32) -> u32 {
    if env::var_os("WINDLASS_DEEP").is_some() { usual * 20 } else { usual }
}
