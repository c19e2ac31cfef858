//! The way to the writer's thread, for those who ask it.
//!
//! Nobody waits for an answer that never comes: when the writer has ended, by an error or by a panic,
//! everyone who waits is told that the store has stopped.

use std::{
    future::{Future as _, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, ready},
    thread::{self, JoinHandle},
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};
use windlass_kernel::{Retention, WorkerId};

use super::{
    checkpointer::Checkpointer,
    saver::{Files, Gate, Saver},
    writer::Writer,
};
use crate::{
    Error, Replies, Write,
    read::Pruned,
    sqlite::{
        Bells,
        file::{now::Now, place::Place, wait::Wait},
    },
};

/// How many batches may wait for the writer. The Committer keeps few in flight.
const REQUESTS_MAX: usize = 64;

/// The way to the writer's thread. Dropping it waits until all that was asked is done.
pub(crate) struct WriterThread {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
    wait: Wait,
}

/// What the writer is asked to do.
pub(crate) enum Request {
    Commit(Arc<Vec<Write>>, oneshot::Sender<Result<Replies, Error>>),
    Prune(Retention, usize, oneshot::Sender<Result<Pruned, Error>>),
    RaiseIncarnation(oneshot::Sender<Result<(), Error>>),
    Vouch(WorkerId, bool, oneshot::Sender<Result<(), Error>>),
    /// The saver reports that a plan failed. Wakes the writer, which may be asleep with plans to
    /// make anew.
    Look,
}

impl Request {
    pub(crate) fn refuse(self, error: Error) {
        match self {
            Self::Commit(_, answer) => drop(answer.send(Err(error))),
            Self::Prune(_, _, answer) => drop(answer.send(Err(error))),
            Self::RaiseIncarnation(answer) | Self::Vouch(_, _, answer) => {
                drop(answer.send(Err(error)));
            }
            Self::Look => {}
        }
    }
}

impl WriterThread {
    pub(crate) fn start(
        connection: Connection,
        place: &Place,
        files: Option<Files>,
        now: Arc<Now>,
        bells: Arc<Bells>,
        wait: Wait,
    ) -> Result<Self, Error> {
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let gate = Gate::default();
        let way = requests.downgrade();
        let checkpointer = Checkpointer::start(place)?;
        let saver = Saver::start(connection, files, checkpointer, gate.clone(), bells, way)?;
        let mut writer = Writer::new(place.connect_to_read()?, saver, gate, now)?;
        writer.end_old_leases()?;
        let thread = thread::Builder::new()
            .name("windlass-writer".to_owned())
            .spawn(move || writer.run(inbox))?;
        Ok(Self { requests: Some(requests), thread: Some(thread), wait })
    }

    /// Has a batch written.
    pub(crate) async fn commit(&self, writes: Arc<Vec<Write>>) -> Result<Replies, Error> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Commit(writes, answer), answered).await
    }

    /// Has one step of retention made.
    pub(crate) async fn prune(&self, retention: Retention, max: usize) -> Result<Pruned, Error> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Prune(retention, max, answer), answered).await
    }

    /// Has a new incarnation begun.
    pub(crate) async fn raise_incarnation(&self) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::RaiseIncarnation(answer), answered).await
    }

    /// Has it noted whether a process vouches for a worker.
    pub(crate) async fn vouch(&self, worker: WorkerId, vouched: bool) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.ask(Request::Vouch(worker, vouched, answer), answered).await
    }

    async fn ask<T>(
        &self,
        request: Request,
        answered: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        self.wait.until(self.answer(request, answered)).await
    }

    async fn answer<T>(
        &self,
        request: Request,
        mut answered: oneshot::Receiver<Result<T, Error>>,
    ) -> Result<T, Error> {
        let requests = self.requests();
        requests.send(request).await.map_err(|_| ended())?;
        // A request that comes in while the writer ends is neither read nor dropped: so look at both.
        let mut closed = pin!(requests.closed());
        poll_fn(|context| {
            if let Poll::Ready(result) = Pin::new(&mut answered).poll(context) {
                return Poll::Ready(result.unwrap_or_else(|_| Err(ended())));
            }
            ready!(closed.as_mut().poll(context));
            // It may have answered just before it ended.
            Poll::Ready(answered.try_recv().unwrap_or_else(|_| Err(ended())))
        })
        .await
    }

    /// A way to have the inbox promoted.
    pub(crate) fn promoter(&self) -> Promoter {
        Promoter { requests: self.requests().downgrade() }
    }

    fn requests(&self) -> &mpsc::Sender<Request> {
        self.requests.as_ref().expect("it is there until this is dropped")
    }
}

impl Drop for WriterThread {
    fn drop(&mut self) {
        // Closing the channel ends the writer, after what it has been given.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Has the inbox promoted, for as long as the writer is there. It does not keep it alive.
pub(crate) struct Promoter {
    requests: mpsc::WeakSender<Request>,
}

/// The answer to an empty batch, when it comes.
pub(crate) type Answered = oneshot::Receiver<Result<Replies, Error>>;

impl Promoter {
    /// Asks the writer to promote the inbox. None, if its queue is full: then the commits in that
    /// queue promote the inbox anyway.
    pub(crate) fn ask(&self) -> Option<Answered> {
        let (answer, answered) = oneshot::channel();
        let request = Request::Commit(Arc::default(), answer);
        self.requests.upgrade()?.try_send(request).is_ok().then_some(answered)
    }
}

fn ended() -> Error {
    Error::Stopped("its writer has ended".to_owned())
}
