//! Claims: what can be claimed, what rules allow, and who gets it.

pub(super) mod direct;
pub(super) mod grant;
pub(super) mod names;
pub(super) mod ready;
pub(super) mod rule_locks;
pub(super) mod rules;
pub(super) mod search;
