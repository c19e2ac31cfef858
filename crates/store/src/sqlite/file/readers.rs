//! Readers: a few threads, each with a connection that cannot write.
//!
//! A reader sees what was committed when it began. In a file it never waits for the writer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{place::Place, wait::Wait};
use crate::{
    Error,
    sqlite::{SqlResult, classify},
};

/// How many reads can run at once. A tenant of a server reads half as many long lists at once.
const READERS: usize = 4;

type Task = Box<dyn FnOnce(&mut Connection) + Send>;

/// Threads that read. Dropping it waits until they have ended.
pub(crate) struct Readers {
    tasks: Option<mpsc::Sender<Task>>,
    threads: Vec<JoinHandle<()>>,
    wait: Wait,
}

impl Readers {
    /// How many reads may queue. Beyond that a caller waits for its place.
    const WAITING_MAX: usize = 256;

    pub(crate) fn open(place: &Place, wait: Wait) -> Result<Self, Error> {
        let (tasks, inbox) = mpsc::channel::<Task>(Self::WAITING_MAX);
        let inbox = Arc::new(Mutex::new(inbox));
        let mut threads = Vec::new();
        for number in 0..READERS {
            let mut connection = place.connect_to_read()?;
            let inbox = inbox.clone();
            let reader = thread::Builder::new().name(format!("windlass-reader-{number}"));
            threads.push(reader.spawn(move || {
                loop {
                    let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
                    match next {
                        Some(task) => task(&mut connection),
                        None => return,
                    }
                }
            })?);
        }
        Ok(Self { tasks: Some(tasks), threads, wait })
    }

    /// Reads in one transaction, so that all of it is from the same moment.
    pub(crate) async fn read<T: Send + 'static>(
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
        self.wait.until(tasks.send(task)).await.map_err(|_| stopped())?;
        self.wait.until(answered).await.map_err(|_| stopped())?
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        // The last connection to close checkpoints the log, and a reader cannot.
        self.tasks = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::mpsc::{Receiver, channel},
        time::Duration,
    };

    use super::*;

    /// However many reads wait, the thread of those who ask does other things meanwhile.
    #[test]
    fn a_full_queue_of_reads_blocks_no_thread_of_the_runtime() {
        let (done, ended) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            runtime.expect("it can be built").block_on(read_too_much());
            done.send(()).expect("somebody waits for it");
        });
        ended.recv_timeout(Duration::from_secs(60)).expect("the thread of the runtime is free");
    }

    /// What is open stays open, whatever becomes of its name: the store says itself that the file is gone.
    #[tokio::test]
    async fn a_reader_that_was_never_asked_reads_a_file_that_was_moved() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("w.db");
        let place = Place::File(path.clone());
        let writer = Connection::open(&path).expect("it is made");
        writer.pragma_update(None, "journal_mode", "wal").expect("it has a log");
        writer
            .execute_batch("CREATE TABLE t (n); INSERT INTO t VALUES (7)")
            .expect("it is written");
        let readers = Readers::open(&place, Wait::Task).expect("it opens");
        std::fs::rename(&path, folder.path().join("away.db")).expect("it is moved");
        let all = Arc::new(std::sync::Barrier::new(READERS));
        let read = || {
            let all = all.clone();
            readers.read(move |connection: &Connection| {
                // Each of them has one of the reads.
                all.wait();
                Ok(Ok(connection.query_row("SELECT n FROM t", [], |row| row.get::<_, i64>(0))?))
            })
        };
        let read = tokio::try_join!(read(), read(), read(), read());
        assert_eq!(read.expect("all can read"), (7, 7, 7, 7));
    }

    async fn read_too_much() {
        let readers =
            Arc::new(Readers::open(&Place::new_in_memory(), Wait::Task).expect("it opens"));
        let (open, gate) = channel::<()>();
        let gate: Arc<Mutex<Receiver<()>>> = Arc::new(Mutex::new(gate));
        let mut reads = tokio::task::JoinSet::new();
        for _ in 0..READERS + Readers::WAITING_MAX + 10 {
            let (readers, gate) = (readers.clone(), gate.clone());
            reads.spawn(async move {
                let wait = move |_: &Connection| {
                    // It ends when the gate is dropped.
                    let _ = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    Ok(Ok(()))
                };
                readers.read(wait).await.expect("it is read");
            });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        drop(open);
        while let Some(read) = reads.join_next().await {
            read.expect("it is read");
        }
    }
}
