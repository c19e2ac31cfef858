//! The history checker: reads a whole store and names every rule that it breaks.
//!
//! It trusts nothing that it can see for itself. The legal moves, the delay of a retry, the alarms and
//! the place in the queue are written here a second time, from the design and not from the kernel: a
//! kernel with a bug must not judge itself. Only the last question (is each row the fold of its events?)
//! is put to the kernel, as a second opinion.
//!
//! The rules work on plain values and have no IO. A backend reads its tables in one snapshot and hands
//! over log rows in their order, then each job with its lines, then keys, runs of tasks, dead letters and
//! results of the inbox, each sorted. So nothing here grows with the store but the list of what is wrong, and that has a bound.
//!
//! A rule is silent where it cannot judge: a history with a hole is told as a hole, and not once more as
//! a wrong chain, a wrong version and a wrong row.

mod act;
mod history;
mod inbox;
mod invariant;
mod job;
mod letter;
mod line;
mod log;
mod moves;
mod note;
mod reach;
mod report;
mod retention;
mod retry;
mod task;
pub(crate) mod values;
mod verify;

pub(crate) use act::ActKind;
pub(crate) use inbox::check as check_inbox;
pub use invariant::Invariant;
pub(crate) use job::check as check_job;
pub(crate) use letter::check as check_letter;
pub(crate) use log::LogCheck;
pub(crate) use note::read as read_note;
pub use report::{Report, Violation};
pub(crate) use retention::{check_gone, check_left};
pub(crate) use task::{KeyCheck, RunCheck};
#[cfg(feature = "postgres")]
pub(crate) use verify::in_order;
pub(crate) use verify::{lines_of, verify};
