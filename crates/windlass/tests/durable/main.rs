//! Durable execution: steps that are recorded, and effects that are never repeated blindly.

#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod common;
mod order;
mod programs;
mod steps;
mod waits;
