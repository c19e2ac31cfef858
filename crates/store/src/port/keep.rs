//! Upkeep of a store.

use windlass_kernel::Retention;

use crate::{StoreFuture, read::Pruned};

/// Keeps a store in order.
pub trait Keep: Send + Sync {
    /// One step of retention: looks closely at so many jobs at the most and forgets those that may go, or
    /// takes their lines, and old results of the inbox, out of a bounded part of the log.
    /// Call it until there is no more, and again after a while.
    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned>;

    /// Begins a new incarnation: epochs jump ahead of all that were handed out before.
    fn raise_incarnation(&self) -> StoreFuture<'_, ()>;
}
