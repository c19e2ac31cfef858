//! A whole cluster in one thread, from one seed: several nodes on one store, with workers that are killed, lines that
//! are cut, answers that are lost and leases that run out.
//!
//! Time is tokio's, paused: it jumps whenever everything waits. Chance comes from the seed alone. So a seed tells the
//! whole history, and the same seed tells the same one twice: that is checked for each. Afterwards no job is stuck,
//! the history breaks no rule, no execution took place that nobody granted, and nobody was refused for no reason: neither
//! a live lease, nor a re-run of what has come to its end.
//!
//! A worker's calls take several ways to the store, as by way of several nodes: what is claimed by one is settled by another.
//!
//! A seed that fails is printed. `WINDLASS_SIMULATION_SEED=<seed>` runs it alone.
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod chance;
mod line;
mod node;
mod world;

use std::env;

use windlass_testkit::random::cases;
use world::{Told, live, live_with};

/// How many seeds each of the tests below runs.
const SEEDS: u32 = 60;

/// The tests run side by side, each a part of the seeds.
macro_rules! parts {
    ($($name:ident $part:literal),*) => {
        $(#[test]
        fn $name() {
            run_part($part);
        })*
    };
}

parts!(
    a_cluster_gets_over_everything_1 0,
    a_cluster_gets_over_everything_2 1,
    a_cluster_gets_over_everything_3 2,
    a_cluster_gets_over_everything_4 3
);

fn run_part(part: u64) {
    // Handlers panic on purpose, and say so often enough.
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
    let seeds = u64::from(cases(SEEDS));
    let first = part * seeds;
    let mut sum = Told::default();
    for seed in chosen(first..first + seeds) {
        let told = live(seed);
        assert_eq!(told.history, live(seed).history, "seed {seed} tells two histories");
        assert_eq!(told.unfounded, [], "seed {seed}: refused for no reason");
        sum.add(&told);
    }
    println!("{sum:?}");
    if env::var_os(CHOSEN).is_none() {
        let Told { events, kills, cuts, lost_answers, interruptions, retries, .. } = sum;
        let Told { stale, refused, .. } = sum;
        let happened = [events, kills, cuts, lost_answers, interruptions, retries, stale, refused];
        assert!(happened.iter().all(|count| *count > 10), "too little happened: {sum:?}");
    }
}

/// What is found must be able to be found: some workers are told that their lease is over while it lives.
#[test]
fn a_live_lease_that_is_refused_is_found_out() {
    let found: usize = (0..5).map(|seed| live_with(seed, 10).unfounded.len()).sum();
    println!("{found} live leases were refused");
    assert!(found > 10);
}

const CHOSEN: &str = "WINDLASS_SIMULATION_SEED";

fn chosen(all: std::ops::Range<u64>) -> Vec<u64> {
    match env::var(CHOSEN).ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) if all.contains(&seed) => vec![seed],
        Some(_) => Vec::new(),
        None => all.collect(),
    }
}
