//! Reads of queues: what waits in them, who works on them, and which rules hold.

use windlass_kernel::Rule;

use crate::{
    Listener, StoreFuture,
    read::{OldestReady, Scope, SessionView},
};

/// Reads queues, the workers at them and the rules for them, and tells when something may be ready.
pub trait ReadQueues: Send + Sync {
    /// Rings whenever jobs may have become ready: here, or on another node. A retry becomes ready because time
    /// passes, which nobody tells: [`Watch::due`](crate::Watch::due) says when.
    fn ready(&self) -> Listener;

    /// How many jobs there are, by queue and state.
    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>>;

    /// For each queue of each tenant the job that waits longest, by tenant and queue.
    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>>;

    /// Every worker session.
    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>>;

    /// Every rule, by name.
    fn rules(&self) -> StoreFuture<'_, Vec<Rule>>;
}
