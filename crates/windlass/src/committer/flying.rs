//! Transactions that are on their way.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::Poll,
};

type Commit<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A few futures, of which any may end first.
pub(super) struct Flying<'a, T> {
    commits: Vec<Commit<'a, T>>,
}

impl<T> Default for Flying<'_, T> {
    fn default() -> Self {
        Self { commits: Vec::new() }
    }
}

impl<'a, T> Flying<'a, T> {
    pub(super) fn add(&mut self, commit: impl Future<Output = T> + Send + 'a) {
        self.commits.push(Box::pin(commit));
    }

    pub(super) fn len(&self) -> usize {
        self.commits.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// What the first one that ends gives back. Dropping the future lets all of them fly on.
    pub(super) async fn next(&mut self) -> T {
        poll_fn(|context| {
            for place in 0..self.commits.len() {
                if let Poll::Ready(ended) = self.commits[place].as_mut().poll(context) {
                    drop(self.commits.remove(place));
                    return Poll::Ready(ended);
                }
            }
            Poll::Pending
        })
        .await
    }
}
