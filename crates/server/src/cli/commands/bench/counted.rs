//! Commits that are counted on their way to the store. The store itself need not count: nothing is added to its hot path.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use windlass_store::{Commit, Overlap, Replies, StoreFuture, Write};

/// How many transactions there were. Clones show the same number.
#[derive(Clone, Default)]
pub(super) struct Commits(Arc<AtomicU64>);

impl Commits {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The way to a store, which counts the commits that go by it.
pub(super) struct Counted {
    pub(super) store: Arc<dyn Commit>,
    pub(super) commits: Commits,
}

impl Commit for Counted {
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(async move {
            let replies = self.store.commit(writes).await?;
            self.commits.0.fetch_add(1, Ordering::Relaxed);
            Ok(replies)
        })
    }

    fn overlap(&self) -> Overlap {
        self.store.overlap()
    }

    fn claims_wait(&self) -> bool {
        self.store.claims_wait()
    }

    fn health(&self) -> StoreFuture<'_, ()> {
        self.store.health()
    }
}
