//! The resources of the API, a file each: what can be called, and what it answers with.
//!
//! A handler reads its body, reads the store or sends a request, and shows a document of [`windlass::wire`]. It decides nothing.

pub(crate) mod alerts;
pub(crate) mod attempts;
pub(crate) mod audit;
pub(crate) mod bulk;
pub(crate) mod claims;
pub(crate) mod clock;
pub(crate) mod demo;
pub(crate) mod feed;
pub(crate) mod internal;
pub(crate) mod jobs;
pub(crate) mod late_queues;
pub(crate) mod leases;
pub(crate) mod ledger;
pub(crate) mod letters;
pub(crate) mod operations;
pub(crate) mod overview;
pub(crate) mod queues;
pub(crate) mod ready;
pub(crate) mod rule_body;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod tasks;
pub(crate) mod tokens;
pub(crate) mod verify;
pub(crate) mod why;
