//! The one way to write.

use std::sync::Arc;

use crate::{Reply, StoreFuture, Write};

/// Where writes go: each batch is one transaction.
pub trait Commit: Send + Sync {
    /// Writes a batch in one transaction. When it answers, the answers are durable.
    ///
    /// What users have put into the inbox comes first, also with a batch that is empty.
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies>;

    /// How many commits it can use at the same time. More are in order, and gain nothing.
    fn overlap(&self) -> Overlap;

    /// Would claims that are on their way at once only wait for each other? Then the time of the second is better used
    /// for other writes. It may say something else after each commit.
    fn claims_wait(&self) -> bool;

    /// Is the store there, and can it be written to?
    fn health(&self) -> StoreFuture<'_, ()>;
}

/// What each write of a batch is told, in the order asked.
pub type Replies = Vec<Result<Reply, windlass_kernel::Refusal>>;

/// How many commits a store can use at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// How many at the most.
    pub commits_max: usize,
    /// How many writes a commit should have to set out while another is on its way. A smaller one
    /// costs the disk as much as a large one, so it had better grow until no commit is in flight.
    pub writes_min: u32,
}

impl Overlap {
    /// One after the other.
    pub const NONE: Self = Self { commits_max: 1, writes_min: 1 };
}
