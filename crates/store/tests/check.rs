//! The checker finds each planted bug by its name. That it finds nothing wrong with a healthy store is
//! part of conformance.

#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

#[path = "check/act_bugs.rs"]
mod act_bugs;
mod common;
#[path = "check/history_bugs.rs"]
mod history_bugs;
#[path = "check/inbox_bugs.rs"]
mod inbox_bugs;
#[path = "check/note_bugs.rs"]
mod note_bugs;
#[path = "check/number_bugs.rs"]
mod number_bugs;
#[path = "check/plant.rs"]
mod plant;
#[path = "check/retention_bugs.rs"]
mod retention_bugs;
#[path = "check/row_bugs.rs"]
mod row_bugs;
