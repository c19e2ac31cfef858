//! Conformance: what every database has to do alike. Each test is written once and runs on all of them.
//!
//! A test is a function of its [`Backend`](common::Backend), named in the `for_each_backend!` of its file:
//! `races::of_two_settles_one_counts` runs as `races::of_two_settles_one_counts::sqlite`.
#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

/// One test for each backend from each of these functions.
macro_rules! for_each_backend {
    ($($name:ident),* $(,)?) => {
        tests_on!([sqlite Sqlite, memory Memory, postgres Postgres] $($name)*);
    };
}

/// The same for functions that open a store again, or from another process: in memory there is none then.
macro_rules! for_each_lasting_backend {
    ($($name:ident),* $(,)?) => {
        tests_on!([sqlite Sqlite, postgres Postgres] $($name)*);
    };
}

macro_rules! tests_on {
    ($backends:tt $($name:ident)*) => {
        $(mod $name {
            use crate::common::Backend;

            tests_of!($name $backends);
        })*
    };
}

macro_rules! tests_of {
    ($name:ident [$($test:ident $backend:ident),*]) => {
        $(#[test]
        fn $test() {
            super::$name(Backend::$backend);
        })*
    };
}

mod acts;
mod by_queue;
mod claims;
mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod differential;
mod due;
mod feed;
mod follow_ups;
mod history;
mod input;
mod large;
mod listening;
mod lists;
mod long_history;
mod marks;
mod presence;
mod progress;
mod races;
mod ready;
mod repeated_claims;
mod retention;
mod rules;
mod schedules;
mod search;
mod sooner;
mod stories;
mod tenants;
mod tokens;
mod turns;
mod unique;
mod user_transactions;
mod words;
