//! Durable execution: handlers whose steps are recorded, so that they go on after any crash.
//!
//! A durable handler is ordinary async code that does what matters through its [`Ctx`]. Each step is recorded in the ledger of
//! its job; after a crash the code runs again from the top, and steps that are on record give back what they gave before,
//! without being called. A [`Ctx::step`] says what may happen if its worker dies in the middle of it: see [`Step`].
//!
//! What came of steps reaches the handler one at a time, in the order of the records, in the first run and in every replay. So
//! `join!`, `select!` and `FuturesUnordered` over durable futures do the same each time.
//!
//! Start with `ctx`, what handlers see; `journal` is the ledger of one execution in memory, a plain value; `drive` polls the
//! handler, records what comes of its steps, and parks the job when all it can do is wait.

mod ctx;
mod drive;
mod error;
mod exec;
mod handler;
mod journal;
mod late;
mod step;
mod wait;

pub use self::{
    ctx::Ctx,
    error::StepError,
    handler::{BoxFutureOf, DurableHandler},
    step::{
        Effect, Fx, Happened, Idempotent, Mode, NotDone, OnUnknown, Once, Pure, Reconciled, Step,
        StepRetry, Unsaid,
    },
    wait::{Child, Receive, Signal, Sleep},
};
pub(crate) use self::{drive::run, exec::Exec, handler::erase};
