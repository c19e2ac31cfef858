//! Retention: what is forgotten, and when its lines leave the log.

mod candidates;
mod gone;
pub(super) mod prune;
pub(super) mod thin;
