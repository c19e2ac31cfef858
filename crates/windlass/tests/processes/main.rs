//! Real processes that are really killed, frozen and cut off: one file per promise.
//!
//! A test starts this program again, as a node that opens the store and works until it is stopped or killed. What
//! handlers do is seen in a file outside the store. On SQLite one process has the file, so nodes follow each other;
//! on PostgreSQL several run at once.
#![expect(clippy::disallowed_methods, reason = "real processes take real time")]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod balancer;
mod common;
mod day;
mod elsewhere;
mod every_statement;
mod freeze;
mod handlers;
mod home;
mod kill;
mod limits;
mod node;
mod outage;
mod outside;
mod pause;
mod poison;
mod rate;
mod runs;
mod soak;
mod wake;
mod watch;
