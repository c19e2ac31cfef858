//! How the caller of a store waits for its answer: as a task, or by blocking its thread.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::{self, Thread},
};

use tokio::task::coop::unconstrained;

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// The task. Its thread does something else meanwhile.
    Task,
    /// The thread: a future is ready when it is first polled, and nothing else happens on this thread before.
    Thread,
}

impl Wait {
    pub(crate) async fn until<T>(self, answered: impl Future<Output = T>) -> T {
        match self {
            Self::Task => answered.await,
            Self::Thread => block_on(answered),
        }
    }
}

/// Waits for a future on this thread, also inside a runtime, where those of tokio that block would panic.
///
/// Tokio lets a task go on only so often before it has to yield. A thread that waits cannot yield: without
/// `unconstrained` it would be told for ever that it is not its turn.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(unconstrained(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
