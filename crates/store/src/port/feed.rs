//! Reads of the feed: all events and notes in one order.

use windlass_kernel::{About, JobId, MarkName, TenantId};

use crate::{
    StoreFuture,
    read::{EventsPage, Feed, FeedEvent, Scope},
};

/// Reads the feed, and what has a place in it.
pub trait ReadFeed: Send + Sync {
    /// Events after a number that the scope may see, in the order of the store, so many at the most, and
    /// [`Feed::BYTES_MAX`] bytes. It looks at as many rows of the log at the most and says how far it looked, which may be
    /// the middle of a commit. If some events are no longer kept it says so, and from where on all are: none is passed over in
    /// silence.
    fn feed(&self, scope: &Scope, after: u64, limit: u32) -> StoreFuture<'_, Feed>;

    /// The number of the newest event, for a follower that begins at the end; 0, if nothing has happened yet.
    fn feed_end(&self) -> StoreFuture<'_, u64>;

    /// A part of that: at most so many events after the one of this number. None, if there is no such job. However long the
    /// history is, little more than the part is read.
    fn events_after(
        &self,
        scope: &Scope,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<EventsPage>>;

    /// What was noted about something that is not a job before an event, newest first, so many at the most.
    fn notes(
        &self,
        tenant: &TenantId,
        about: &About,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>>;

    /// What people did before an event, newest first, so many at the most and no more than [`PageFrom::LIMIT_MAX`](crate::read::PageFrom::LIMIT_MAX): the
    /// events and notes of everything but enqueues.
    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>>;

    /// How far a follower of the feed has come, if it ever said so by [`Write::Mark`](crate::Write::Mark).
    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>>;
}
