//! The rig: an engine whose commits are counted, as a program has it.

use std::sync::Arc;

use windlass::{Config, Engine, Handle};

use super::{
    counted::{Commits, Counted},
    error::Error,
    place::Database,
};

pub(super) struct Rig {
    engine: Engine,
    commits: Commits,
}

impl Rig {
    /// Opens the database, which is made if it is not there.
    pub(super) async fn open(database: &Database) -> Result<Self, Error> {
        let commits = Commits::default();
        let store = database.open().await?;
        let counted = Counted { store: store.clone(), commits: commits.clone() };
        let engine = Engine::committing(store, Arc::new(counted), &Config::default());
        Ok(Self { engine, commits })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(super) fn handle(&self) -> Handle {
        self.engine.committer().clone()
    }

    /// Transactions since it was opened.
    pub(super) fn commits(&self) -> u64 {
        self.commits.count()
    }

    /// Waits until all is written. The store is closed with it: the write-ahead log is folded into the file.
    pub(super) async fn close(self) {
        self.engine.close().await;
    }
}
