//! Reads of ledgers: what durable jobs have done, and what came for them.

use windlass_kernel::JobId;

use crate::{
    StoreFuture,
    read::{Ledger, Scope},
};

/// Reads the ledgers of durable jobs.
pub trait ReadLedgers: Send + Sync {
    /// The ledger of a job, from the record of this number on: steps that are on record, those that are not, its mail, and what
    /// was handed in late. None, if there is no such job.
    fn ledger(&self, scope: &Scope, id: JobId, from: u32) -> StoreFuture<'_, Option<Ledger>>;
}
