//! The worker: claims jobs, runs their handlers, and reports how they ended.
//!
//! A worker claims as many jobs as it has free slots, in one op, and, if it is told to, a few ahead into a local queue
//! when jobs are short; what waits there stays `dispatched`. One renewal keeps all its leases, and brings back what it has to
//! know: cancel requests and lost leases. What handlers report goes through the Committer, which groups it.
//!
//! Always true here: a handler begins after its start is durable, and a slot is taken from then until the handler
//! has returned. An execution whose lease is lost is dropped and writes nothing more. A handler that panics fails
//! its attempt and nothing else.

mod appetite;
mod builder;
mod claim;
mod context;
mod execute;
mod executions;
mod handler;
mod middleware;
mod notice;
mod outcome;
mod pace;
mod renew;
mod report;
mod run;
mod unfit;

pub use self::{
    builder::{Worker, WorkerBuilder},
    context::{Context, Fence, Stop},
    handler::Handler,
    middleware::{Middleware, Next},
    outcome::{BoxError, HandlerResult, IntoOutcome, Outcome},
    report::Report,
};
pub(crate) use self::{
    executions::Executions,
    handler::AnyHandler,
    outcome::{Park, failure_of, panicked},
    unfit::unfit,
};

use std::{future::Future, pin::Pin};

/// A future that can be kept.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;
