//! Reads that look at more than the rows of one noun. Nothing here changes anything.

pub(super) mod causes;
pub(super) mod due;
pub(super) mod feed;
pub(super) mod history;
pub(super) mod job;
pub(super) mod list;
pub(super) mod queue;
pub(super) mod standing;
pub(super) mod survey;
pub(super) mod traces;
pub(super) mod verify;
