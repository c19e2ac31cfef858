//! Durable state: one way to write, and reads by noun. [`Store`] is the sum of what can be asked.
//!
//! [`Commit::commit`] takes a batch of writes and puts all of it into one transaction: it loads the rows
//! they name, asks the kernel about each, and saves what the kernel says, rows and events together. A
//! refused write changes nothing and does not fail its neighbours. Nothing is answered before it is
//! durable.
//!
//! A backend only loads, saves, reads and wakes. What a commit does with the rows is in [`commit`], once.

mod address;
mod bell;
pub mod check;
pub mod commit;
#[cfg(feature = "faults")]
pub mod crash;
mod due;
mod error;
mod history_page;
mod id_map;
mod inbox;
mod job_row;
mod ledger_row;
mod log;
mod migrate;
mod news;
mod notes;
mod packed;
mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod read;
mod row;
mod rules;
mod schedule_row;
mod search;
pub mod sqlite;
mod standing;
mod steady;
mod survey;
mod token_row;

pub use address::without_password;
pub use bell::{Bell, Listener};
pub use commit::{
    ClaimMany, ClaimReply, Granted, RenewSession, RenewalReply, Reply, Request, Scheduled,
    TenantOp, Write,
};
pub use error::{Error, Owner};
pub use id_map::{IdMap, IdSet};
pub use log::spec_digest;
pub use port::{
    Client, Commit, Inspect, Keep, Overlap, ReadFeed, ReadJobs, ReadLedgers, ReadLetters,
    ReadQueues, ReadSchedules, ReadTokens, Replies, Store, StoreFuture, Watch,
};
pub use rules::RuleChange;
pub use rusqlite;
pub use steady::{ClockStanding, JUMP_MAX, Ticks, uptime};
pub use survey::{MigrationStep, Survey};
