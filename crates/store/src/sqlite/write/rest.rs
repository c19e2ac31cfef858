//! How the writer's thread waits for its next request: it spins for a moment, then sleeps.
//!
//! Callers who wait for a commit ask again as soon as they have heard of it, and waking a thread
//! takes about as long as they do. So under load the writer spins for up to 0.2 ms before it
//! sleeps, and yields to other threads meanwhile. With a single caller, or an occasional one, it
//! sleeps at once and uses no processor time.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc::{Receiver, error::TryRecvError};

/// How long it spins.
const AWAKE: Duration = Duration::from_micros(200);

/// Whether spinning paid off the last time.
#[derive(Default)]
pub(crate) struct Rest {
    /// Did the last request arrive within the time that it may spin?
    is_crowded: bool,
}

impl Rest {
    /// The next request. None, when nobody can ask any more.
    pub(crate) fn until<T>(&mut self, requests: &mut Receiver<T>) -> Option<T> {
        let since = now();
        while self.is_crowded && since.elapsed() < AWAKE {
            match requests.try_recv() {
                Ok(request) => return Some(request),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => thread::yield_now(),
            }
        }
        let request = requests.blocking_recv();
        self.is_crowded = since.elapsed() < AWAKE;
        request
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a thread stays awake, which decides nothing about jobs"
)]
fn now() -> Instant {
    Instant::now()
}
