//! SQLite in memory: a home is where one store was, and is gone with it.

use std::sync::{Arc, OnceLock};

use rusqlite::Connection;
use tokio::runtime::Runtime;
use windlass_kernel::{FollowUp, TenantId};
use windlass_store::{
    Error, Store, Ticks,
    check::Report,
    sqlite::{Clock, MemoryOptions, Sqlite},
};

use super::{
    Home, User,
    sqlite::{SIDE_TABLES, count, follow_ups, next_attempts},
};

/// A store in memory, once it was opened. It lives as long as its home.
#[derive(Default)]
pub struct MemoryHome {
    /// Does it answer on the spot?
    pub inline: bool,
    store: OnceLock<Arc<Sqlite>>,
}

impl MemoryHome {
    /// A store that answers on the spot.
    pub fn new_inline() -> Self {
        Self { inline: true, ..Self::default() }
    }

    pub fn store(&self) -> &Arc<Sqlite> {
        self.store.get().expect("it was opened")
    }

    fn sql(&self) -> Connection {
        self.store().connect().unwrap()
    }
}

impl Home for MemoryHome {
    fn address(&self) -> String {
        panic!("no other process finds what is in the memory of this one")
    }

    fn open_with_ticks(
        &self,
        clock: Clock,
        ticks: Option<Ticks>,
        _: &Runtime,
    ) -> Result<Arc<dyn Store>, Error> {
        let options = MemoryOptions { clock, ticks, inline: self.inline };
        let store = Arc::new(Sqlite::in_memory(options)?);
        let is_first = self.store.set(store.clone()).is_ok();
        assert!(is_first, "what was in memory is not there to be opened again");
        Ok(store)
    }

    fn check(&self) -> Report {
        self.store().check().unwrap()
    }

    fn user(&self) -> Box<dyn User> {
        Box::new(self.sql())
    }

    fn count(&self, table: &str) -> u64 {
        count(&self.sql(), table)
    }

    fn side_tables(&self) -> &'static [&'static str] {
        SIDE_TABLES
    }

    fn next_attempts(&self, tenant: &TenantId) -> Vec<u32> {
        next_attempts(&self.sql(), tenant)
    }

    fn follow_ups(&self) -> Vec<FollowUp> {
        follow_ups(&self.sql())
    }
}
