//! Retention: what is forgotten, and when its lines leave the log.

pub(super) mod prune;
pub(super) mod thin;
