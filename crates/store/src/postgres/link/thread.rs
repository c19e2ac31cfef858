//! The thread that talks to the server.
//!
//! A commit is many small messages. If its task and the task of its connection ran on different threads, each
//! message would wake another thread, and waking costs more than most of the work. So all of a store runs on one
//! thread of its own, and whoever asks is woken once, with the answer. It also goes on whatever its users do:
//! a commit that was begun ends, also if nobody waits for it any more.

use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

use crate::Error;

/// A thread with a runtime. Dropping it ends the thread, with all connections.
pub(crate) struct Thread {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Thread {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let _ = runtime.block_on(stopped);
        };
        let thread = thread::Builder::new().name("windlass-postgres".to_owned()).spawn(run)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Has it run there, and waits for the answer.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let ended = || Error::Stopped("its thread has ended".to_owned());
        self.handle.spawn(call).await.unwrap_or_else(|_| Err(ended()))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
