//! How the writer rests until it is asked for something.
//!
//! Callers who wait for a commit ask again as soon as they have heard of it, and waking a thread takes about as long
//! as they do. So in a crowd the writer looks around for a moment before it sleeps, and lets others run
//! meanwhile. Whoever is alone, or comes now and then, finds it asleep: it costs nothing to wait for them.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::sync::mpsc::{Receiver, error::TryRecvError};

/// How long it looks around.
const AWAKE: Duration = Duration::from_micros(200);

/// What it remembers of the last time.
#[derive(Default)]
pub(super) struct Rest {
    /// Was there something to do again before it had looked around for long?
    is_crowded: bool,
}

impl Rest {
    /// The next request. None, when nobody can ask any more.
    pub(super) fn until<T>(&mut self, requests: &mut Receiver<T>) -> Option<T> {
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
