//! The commands, a file or a folder each. Each says in its first line what a person types.

pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod dev;
pub(crate) mod dlq;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod job;
pub(crate) mod migrate;
pub(crate) mod queue;
pub(crate) mod replay;
pub(crate) mod restore;
pub(crate) mod schedule;
pub(crate) mod serve;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod worker;
