//! Rows by noun: how each kind is loaded, saved and read. A new kind of row is one file here, and its twin in SQLite.

pub(super) mod act;
pub(super) mod column;
pub(super) mod follow_up;
pub(super) mod follower;
pub(super) mod granted;
pub(super) mod inbox;
pub(super) mod job;
pub(super) mod job_save;
pub(super) mod ledger;
pub(super) mod letter;
pub(super) mod note;
pub(super) mod output;
pub(super) mod progress;
pub(super) mod rule;
pub(super) mod schedule;
pub(super) mod session;
pub(super) mod task;
pub(super) mod token;
