//! The ops on a dead letter.

pub(crate) mod discard;
pub(crate) mod requeue;
