//! What an execution is told while it runs, by the worker that has it.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::Notify;

use super::context::Stop;

/// What an execution is told. A later one counts for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Signal {
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

impl Signal {
    const ALL: [Signal; 5] =
        [Signal::Go, Signal::Shutdown, Signal::Cancelled, Signal::LeaseLost, Signal::Abandon];

    /// What a handler is told.
    pub(super) fn stop(self) -> Option<Stop> {
        match self {
            Signal::Go => None,
            Signal::Shutdown | Signal::Abandon => Some(Stop::Shutdown),
            Signal::Cancelled => Some(Stop::Cancelled),
            Signal::LeaseLost => Some(Stop::LeaseLost),
        }
    }
}

/// The way from a worker to one execution. Clones are the same way. It is made for each execution, so it is small.
#[derive(Clone, Debug, Default)]
pub(super) struct Signals {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    signal: AtomicU8,
    told: Notify,
}

impl Signals {
    /// Tells it something that counts for more than what it was told before.
    pub(super) fn raise(&self, signal: Signal) {
        let before = self.inner.signal.fetch_max(signal as u8, Ordering::SeqCst);
        if before < signal as u8 {
            self.inner.told.notify_waiters();
        }
    }

    /// What it was told last.
    pub(super) fn get(&self) -> Signal {
        Signal::ALL[usize::from(self.inner.signal.load(Ordering::SeqCst))]
    }

    /// Waits until it is told this, or something that counts for more.
    pub(super) async fn at_least(&self, signal: Signal) -> Signal {
        loop {
            let mut told = pin!(self.inner.told.notified());
            told.as_mut().enable();
            let now = self.get();
            if now >= signal {
                return now;
            }
            told.await;
        }
    }
}
