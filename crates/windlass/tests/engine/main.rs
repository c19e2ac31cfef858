//! The engine: one file per promise.
//!
//! Most tests run in memory under a paused clock, where time skips forward and nothing sleeps. What has to be true of
//! real stores, and across processes, runs on files and on PostgreSQL in real time.
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod cancel;
#[path = "../simulation/chance.rs"]
#[expect(dead_code, reason = "a line to the store draws little from it")]
mod chance;
mod children;
mod common;
mod faults;
mod handlers;
mod health;
mod keeping;
mod leases;
#[path = "../simulation/line.rs"]
#[expect(dead_code, reason = "the simulation uses more of it")]
mod line;
mod lost_answers;
mod mass_failure;
mod prefetch;
mod progress;
mod requests;
mod rules;
mod runs;
mod schedules;
mod shutdown;
mod spans;
mod stores;
mod tasks;
mod timers;
mod traces;
mod why;
