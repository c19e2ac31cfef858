//! The ledger: what a durable handler has done, step by step, so that it can go on after any crash.
//!
//! Each durable operation of a handler is a [`Step`]: begun, and later recorded with what came of it. Records are numbered in
//! the order in which the handler saw them, so that a replay shows them in the same order. Mail (signals, messages and the
//! ends of children) waits beside it until the handler asks for it.
//!
//! Always true: a step is recorded once, and its record never changes. A `once` step is begun, durably, before its effect
//! runs; if its worker is lost before the record, nobody runs it again without knowing what became of it (the barrier).

mod effect;
mod head;
mod mail;
pub(crate) mod ops;
mod step;

pub use self::{
    effect::Effect,
    head::LedgerHead,
    mail::{Mail, MailContent, MailName},
    step::{Mode, Record, RecordedBy, Shape, Step, StepAnswer, StepOp, StepOutcome},
};
