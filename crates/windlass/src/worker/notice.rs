//! Notices: what a worker tells one of its executions while that runs.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::Notify;

use super::context::Stop;

/// What an execution is told. A later variant takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Notice {
    /// Go on.
    Go,
    /// The worker shuts down.
    Shutdown,
    /// Someone wants the job to be cancelled.
    Cancelled,
    /// The lease is lost.
    LeaseLost,
    /// The grace period is over: it is dropped, and its job given back.
    Abandon,
}

impl Notice {
    const ALL: [Notice; 5] =
        [Notice::Go, Notice::Shutdown, Notice::Cancelled, Notice::LeaseLost, Notice::Abandon];

    /// What a handler is told.
    pub(super) fn stop(self) -> Option<Stop> {
        match self {
            Notice::Go => None,
            Notice::Shutdown | Notice::Abandon => Some(Stop::Shutdown),
            Notice::Cancelled => Some(Stop::Cancelled),
            Notice::LeaseLost => Some(Stop::LeaseLost),
        }
    }
}

/// The channel from a worker to one execution. Clones are the same channel. Each execution has one, so
/// it is small.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    notice: AtomicU8,
    told: Notify,
}

impl Notices {
    /// Tells it something, unless it was told something that takes precedence.
    pub(super) fn raise(&self, notice: Notice) {
        let before = self.inner.notice.fetch_max(notice as u8, Ordering::SeqCst);
        if before < notice as u8 {
            self.inner.told.notify_waiters();
        }
    }

    /// What it was told last.
    pub(super) fn get(&self) -> Notice {
        Notice::ALL[usize::from(self.inner.notice.load(Ordering::SeqCst))]
    }

    /// Waits until it is told this, or something that takes precedence.
    pub(super) async fn at_least(&self, notice: Notice) -> Notice {
        loop {
            let mut told = pin!(self.inner.told.notified());
            told.as_mut().enable();
            let now = self.get();
            if now >= notice {
                return now;
            }
            told.await;
        }
    }
}
