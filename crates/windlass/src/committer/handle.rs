//! The handle: how the rest of Windlass submits writes.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio::sync::oneshot;
use windlass_kernel::Refusal;
use windlass_store::{Error, Reply, Write};

use super::queue::{Answer, Group, Queue};

/// Submits writes to a [`Committer`](super::Committer). Clones are cheap and share its queue.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) queue: Arc<Queue>,
}

/// A write got no reply. Told apart by what the caller does next.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// The rules say no. Nothing changed.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store could not answer: its error says whether to send again.
    #[error("the write was not confirmed")]
    Store(#[source] Arc<Error>),
    /// The queue has no room. Nothing was written; send again later.
    #[error("too many writes are waiting")]
    Full,
    /// The Committer has ended or is about to. Nothing was written.
    #[error("the committer is closed")]
    Closed,
}

impl Handle {
    /// Submits a write, waits for room if there is none, and waits for the answer.
    ///
    /// Dropping the future before there was room withdraws the write. After that the write takes its
    /// way, and only the answer is lost.
    pub async fn submit(&self, write: Write) -> Result<Reply, SubmitError> {
        let (ticket, group) = self.prepare(write);
        self.queue.accept(group).await;
        ticket.await
    }

    /// Submits a write if there is room now. The ticket brings the answer.
    ///
    /// Writes are in the order of these calls, whether or not somebody waits for the tickets.
    pub fn try_submit(&self, write: Write) -> Result<Ticket, SubmitError> {
        let (ticket, group) = self.prepare(write);
        self.queue.try_accept(group)?;
        Ok(ticket)
    }

    /// Submits writes in this order and gives back their answers in the same order.
    ///
    /// They need not share a transaction: each has its own answer, and if the Committer closes in
    /// between, the first may be written and the last not.
    pub async fn submit_many(&self, writes: Vec<Write>) -> Vec<Result<Reply, SubmitError>> {
        let mut tickets = Vec::with_capacity(writes.len());
        let mut group: Option<Group> = None;
        let mut left = writes.len();
        for write in writes {
            let (answer, answered) = oneshot::channel();
            tickets.push(Ticket { answered });
            let waiting = self.queue.waiting(write, answer);
            let waiting = match &mut group {
                Some(open) => open.add(waiting, self.queue.group_max()),
                None => Some(waiting),
            };
            // The first one, or one that begins the next group.
            if let Some(waiting) = waiting
                && let Some(full) = group.replace(Group::with_room(waiting, left))
            {
                self.queue.accept(full).await;
            }
            left -= 1;
        }
        if let Some(last) = group {
            self.queue.accept(last).await;
        }
        let mut answers = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            answers.push(ticket.await);
        }
        answers
    }

    /// Has the store promote what users enqueued in their own transactions, at once.
    ///
    /// Call it after such a transaction has committed. Without it the job starts a little later: with the
    /// next write of anybody, or when the store looks by itself.
    pub fn wake(&self) {
        self.queue.wake();
    }

    fn prepare(&self, write: Write) -> (Ticket, Group) {
        let (answer, answered) = oneshot::channel();
        (Ticket { answered }, Group::of(self.queue.waiting(write, answer)))
    }
}

/// The answer to a write that was accepted, to be awaited. Dropping it does not withdraw the write.
#[derive(Debug)]
pub struct Ticket {
    answered: oneshot::Receiver<Answer>,
}

impl Future for Ticket {
    type Output = Result<Reply, SubmitError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answered).poll(context).map(|answer| answer.unwrap_or_else(|_| lost()))
    }
}

/// The Committer was dropped or panicked while the store had the write: nobody knows what became of it.
fn lost() -> Answer {
    let why = "the committer ended while the store was writing";
    Err(SubmitError::Store(Arc::new(Error::Ambiguous(why.into()))))
}
