//! Tests of the Committer on a store that does as it is told.

mod ending;
mod failing;
mod fake;
mod grouping;
mod order;
pub(super) mod schedules;
