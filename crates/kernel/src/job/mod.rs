//! Jobs: the row, its machine, its history, and the ops that move it.
//!
//! `row` is what is stored, [`machine`] the table of legal moves, [`event`] the history and `evolve` what it makes of a
//! row; `ops/` has one file for each op.

pub mod event;
pub(crate) mod evolve;
pub mod lane;
pub mod machine;
pub(crate) mod ops;
pub mod retention;
pub mod retry;
mod row;
pub mod timer;
pub mod transition;

pub use self::row::*;
