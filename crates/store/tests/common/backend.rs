//! What a test needs of a database beside the store itself, so that it runs on every one of them.

use std::sync::Arc;

use tokio::runtime::Runtime;
use windlass_kernel::{FollowUp, Refusal, TenantId, Timestamp, ops::Enqueue};
use windlass_store::{Error, Store, Ticks, check::Report, sqlite::Clock};

use super::{memory::MemoryHome, postgres::SchemaHome, sqlite::FileHome};

/// A database that stores can be kept in.
#[derive(Clone, Copy, Debug)]
pub enum Backend {
    Sqlite,
    /// SQLite in memory. What is there is gone when it is closed.
    Memory,
    Postgres,
}

impl Backend {
    /// Its name, which is also that of its tests.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Sqlite => "sqlite",
            Backend::Memory => "memory",
            Backend::Postgres => "postgres",
        }
    }

    /// A new place for a store.
    pub fn new_home(self) -> Arc<dyn Home> {
        match self {
            Backend::Sqlite => Arc::new(FileHome::new()),
            Backend::Memory => Arc::new(MemoryHome::default()),
            Backend::Postgres => Arc::new(SchemaHome::new()),
        }
    }

    /// A new place for a store of which nothing has to outlive the machine.
    pub fn new_quick_home(self) -> Arc<dyn Home> {
        match self {
            Backend::Sqlite => Arc::new(FileHome::new_in_memory()),
            Backend::Memory => Arc::new(MemoryHome::default()),
            Backend::Postgres => Arc::new(SchemaHome::new()),
        }
    }

    /// The place of this address, which another process made.
    pub fn home_at(self, address: &str) -> Arc<dyn Home> {
        match self {
            Backend::Sqlite => Arc::new(FileHome::at(address.as_ref())),
            Backend::Memory => panic!("{address} is in no memory"),
            Backend::Postgres => Arc::new(SchemaHome::at(address)),
        }
    }
}

/// Where a store is, and is found again after it was closed. Whoever made it removes it by dropping it.
pub trait Home: Send + Sync {
    /// Where it is, for another process.
    fn address(&self) -> String;

    /// Opens the store that is here, with this clock. What it does in the background it does on the runtime.
    fn open(&self, clock: Clock, runtime: &Runtime) -> Result<Arc<dyn Store>, Error> {
        self.open_with_ticks(clock, None, runtime)
    }

    /// The same, with a monotonic clock beside the one that can be set.
    fn open_with_ticks(
        &self,
        clock: Clock,
        ticks: Option<Ticks>,
        runtime: &Runtime,
    ) -> Result<Arc<dyn Store>, Error>;

    /// Reads all that is stored here and tells what breaks a rule. The store may be open.
    fn check(&self) -> Report;

    /// A user of the same database, with a connection of its own.
    fn user(&self) -> Box<dyn User>;

    /// How many rows a table has.
    fn count(&self, table: &str) -> u64;

    /// Tables that are empty while no job has a large payload, an output or a long history, and none that
    /// was forgotten is still spoken of.
    fn side_tables(&self) -> &'static [&'static str];

    /// The next attempt of each task of a tenant, smallest first. No read of the store tells it.
    fn next_attempts(&self, tenant: &TenantId) -> Vec<u32>;

    /// What waits to be carried out for other jobs, in order. No read of the store tells it.
    fn follow_ups(&self) -> Vec<FollowUp>;
}

/// A user who writes rows, and enqueues jobs, in transactions of its own.
pub trait User: Send {
    /// Begins a transaction that will write.
    fn begin(&mut self);

    /// Runs a statement that every database understands: `COMMIT`, `ROLLBACK`, `SAVEPOINT a`.
    fn sql(&mut self, sql: &str);

    /// Enqueues in the transaction, at this time. Whatever else than a refusal goes wrong fails the test.
    fn put(&mut self, op: &Enqueue, at: Timestamp) -> Result<(), Refusal>;

    /// How many rows this connection has changed, in whatever table.
    fn changes(&mut self) -> u64;
}
