//! Readers: a few threads, each with a connection that cannot write.
//!
//! A reader sees what was committed when it began. In a file it never waits for the writer.

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{SqlResult, classify, place::Place, wait::Wait};
use crate::Error;

/// How many reads can run at once. A tenant of a server reads half as many long lists at once.
const READERS: usize = 4;

type Task = Box<dyn FnOnce(&mut Connection) + Send>;

/// Threads that read. Dropping it waits until they have ended.
pub(super) struct Readers {
    tasks: Option<mpsc::SyncSender<Task>>,
    threads: Vec<JoinHandle<()>>,
    wait: Wait,
}

impl Readers {
    /// How many reads may wait before a caller waits too.
    const WAITING_MAX: usize = 256;

    pub(super) fn open(place: &Place, wait: Wait) -> Result<Self, Error> {
        let (tasks, inbox) = mpsc::sync_channel::<Task>(Self::WAITING_MAX);
        let inbox = Arc::new(Mutex::new(inbox));
        let mut threads = Vec::new();
        for number in 0..READERS {
            let mut connection = place.connect_to_read()?;
            let inbox = inbox.clone();
            let reader = thread::Builder::new().name(format!("windlass-reader-{number}"));
            threads.push(reader.spawn(move || {
                loop {
                    let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    match next {
                        Ok(task) => task(&mut connection),
                        Err(_) => return,
                    }
                }
            })?);
        }
        Ok(Self { tasks: Some(tasks), threads, wait })
    }

    /// Reads in one transaction, so that all of it is from the same moment.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> SqlResult<Result<T, Error>> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let task: Task = Box::new(move |connection| {
            let result = connection.transaction().and_then(|snapshot| read(&snapshot));
            let _ = answer.send(result.map_err(classify).and_then(|result| result));
        });
        let stopped = || Error::Stopped("its readers have ended".to_owned());
        let tasks = self.tasks.as_ref().expect("it is there until this is dropped");
        tasks.send(task).map_err(|_| stopped())?;
        self.wait.until(answered).await.map_err(|_| stopped())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // The last connection to close folds the log into the file, and a reader cannot.
        self.tasks = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
