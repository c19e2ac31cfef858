//! One commit: what a batch of writes does to the rows that were loaded for it.
//!
//! A commit has three phases. First the writes that name a job are decided in order over a working set
//! of rows. Then claims: `admit` shares out what is ready, less what the first phase touched, and each
//! grant is decided. Then everything is saved at once. A backend does the loading and saving; what
//! happens in between is here and has no IO, so it is the same on every database.

mod changes;
mod claims;
pub(crate) mod driver;
mod needs;
mod request;
mod rules;
mod schedules;
mod set;
mod table;
mod tokens;
mod write;

pub use self::{
    changes::{Changes, Output},
    claims::ClaimMany,
    needs::{Key, Needs, Unique},
    request::{ClaimReply, RenewSession, RenewalReply, Request, TenantOp},
    schedules::{ScheduleKey, Scheduled, jobs_of},
    set::{Row, WorkingSet},
    table::{Noun, Put, Puts},
    write::{Granted, Reply, Write},
};
pub(crate) use self::{
    claims::{ClaimShare, Filled, Grant, Grants},
    table::after,
};
