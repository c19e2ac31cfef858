//! The store against a plain map: thousands of random sequences, the same answers, the same rows.
//!
//! The map is the kernel with nothing under it (`MapStore`). Sequences follow each other in one store, each
//! with tenants and ids of its own: what is left of one must not reach into the next. A run in which some
//! op did not succeed often, or some refusal did not occur, fails: it has proved nothing about them.

use std::thread;

use windlass_testkit::random::{self, Chance, Tally};

use crate::{
    by_queue::claim_by_queue,
    common::{Backend, rich::Rich},
};

// In memory the SQL is the same, and it takes half a minute.
tests_on!([sqlite Sqlite, postgres Postgres] thousands_of_sequences_are_what_the_map_says);

/// Stores of a run, and sequences that live in each.
const STORES: u32 = 20;
const SEQUENCES: u64 = 100;

/// How often each op has to do something.
const SUCCESSES_MIN: u64 = 30;

fn thousands_of_sequences_are_what_the_map_says(backend: Backend) {
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    let stores = u64::from(random::cases(STORES));
    let tallies = thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            scope.spawn(move || {
                let mut tally = Tally::default();
                let mine = (0..stores).filter(|number| number % 2 == half);
                mine.for_each(|number| {
                    tally.add(live_through(backend, Chance::new(seed + number)));
                });
                tally
            })
        });
        halves.map(|half| half.join().unwrap())
    });
    let mut tally = Tally::default();
    tallies.into_iter().for_each(|it| tally.add(it));
    println!("{} sequences", stores * SEQUENCES);
    tally.print();
    assert_eq!(tally.rarer_than(SUCCESSES_MIN), [""; 0], "ops that did too little");
    assert_eq!(tally.never_seen(), [""; 0], "refusals that did not occur");
}

/// Lives through many sequences in one store, and looks at all of it at the end.
fn live_through(backend: Backend, mut chance: Chance) -> Tally {
    // Nothing here is about the disk.
    let mut rich = Rich::new_in(backend.new_quick_home());
    let mut granted = 0;
    for family in 1..=SEQUENCES {
        rich.begin(family);
        let batch = chance.weighted(&[(1, 1), (2, 5), (1, 14)]);
        let steps = 20 + chance.below(41);
        for part in 1..=4 {
            rich.live(chance.draw(), steps / 4, batch);
            let claim = (u128::from(family) << 64) + (part << 32);
            granted += claim_by_queue(&mut rich, claim, &mut chance);
        }
        rich.compare();
    }
    assert!(granted > 100, "only {granted} jobs were claimed by queue");
    rich.compare_totals();
    let report = rich.home.check();
    assert!(report.is_clean(), "{report}");
    rich.tally
}
