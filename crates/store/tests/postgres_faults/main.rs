//! PostgreSQL that fails: processes killed, servers restarted, answers lost, locks held by others.
//!
//! Whatever happens, what was acknowledged is there, once, and the store goes on by itself. Each test has a
//! bounded number of faults; with `WINDLASS_DEEP` it has many more.
#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod ambiguous;
mod clock;
#[path = "../common/mod.rs"]
mod common;
mod connections;
mod control;
mod crash;
mod feed;
mod frozen;
mod judge;
mod load;
mod lock_order;
mod locks;
mod migrations;
mod nodes;
mod partitions;
mod proxy;
mod restart;
mod restored;
mod standby;
mod versions;

/// So many, or so many with `WINDLASS_DEEP`.
fn count(usual: u64, deep: u64) -> u64 {
    if std::env::var_os("WINDLASS_DEEP").is_some() { deep } else { usual }
}
