//! The rig: a store and a Committer in front of it, as a server has them.

use std::sync::Arc;

use tokio::{sync::oneshot, task::JoinHandle};
use windlass::{Committer, Handle, SubmitError, committer::Config};
use windlass_store::Error as StoreError;

use super::{
    counted::{Commits, Counted},
    error::Error,
    place::Database,
};

pub(super) struct Rig {
    handle: Handle,
    commits: Commits,
    stop: oneshot::Sender<()>,
    committing: JoinHandle<Result<(), Arc<StoreError>>>,
}

impl Rig {
    /// Opens the database, which is made if it is not there.
    pub(super) async fn open(database: &Database) -> Result<Self, Error> {
        let commits = Commits::default();
        let store = Counted { store: database.open().await?, commits: commits.clone() };
        let committer = Committer::new(Arc::new(store), Config::default());
        let handle = committer.handle();
        let (stop, stopped) = oneshot::channel();
        let committing = tokio::spawn(committer.run(async {
            // A rig that was dropped wants no more either.
            let _ = stopped.await;
        }));
        Ok(Self { handle, commits, stop, committing })
    }

    pub(super) fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Transactions since it was opened.
    pub(super) fn commits(&self) -> u64 {
        self.commits.count()
    }

    /// Waits until the store is closed: the write-ahead log is folded into the file.
    pub(super) async fn close(self) -> Result<(), Error> {
        drop(self.stop);
        let ended = self.committing.await.expect("the Committer does not panic");
        ended.map_err(|error| SubmitError::Store(error).into())
    }
}
