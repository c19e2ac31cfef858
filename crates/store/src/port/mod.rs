//! The port: what can be asked of a store, in parts.
//!
//! A caller names the part that it needs, and whoever wraps or fakes a store implements only that. [`Client`] is what can
//! be asked from anywhere, so a server that is spoken to over HTTP is one too; [`Store`] is everything, for the
//! process that has the database open. Nothing here answers for what it cannot do: it is not implemented.

mod commit;
mod feed;
mod inspect;
mod jobs;
mod keep;
mod ledgers;
mod letters;
mod queues;
mod schedules;
mod tokens;
mod watch;

use std::{future::Future, pin::Pin};

pub use self::{
    commit::{Commit, Overlap, Replies},
    feed::ReadFeed,
    inspect::Inspect,
    jobs::ReadJobs,
    keep::Keep,
    ledgers::ReadLedgers,
    letters::ReadLetters,
    queues::ReadQueues,
    schedules::ReadSchedules,
    tokens::ReadTokens,
    watch::Watch,
};
use crate::Error;

/// A future that a store gives back.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What can be asked of a store from anywhere: in the process that has it, or over HTTP.
pub trait Client: Commit + ReadJobs + ReadLetters + ReadSchedules + ReadQueues {}

impl<T: Commit + ReadJobs + ReadLetters + ReadSchedules + ReadQueues> Client for T {}

/// A place where jobs are kept, in the process that has it open: all that can be asked.
pub trait Store: Client + ReadFeed + ReadLedgers + ReadTokens + Inspect + Watch + Keep {}

impl<T: Client + ReadFeed + ReadLedgers + ReadTokens + Inspect + Watch + Keep> Store for T {}
