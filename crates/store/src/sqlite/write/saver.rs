//! The saver: the thread that writes, with the one connection that can.
//!
//! It writes plans in the order in which the writer made them, each in a transaction of its own.
//! The caller is answered when the transaction is on the disk, and not before. Meanwhile the writer
//! makes the next plan, on top of this one. So if one fails, those that are already made after it
//! cannot be written as they are: they go back to the writer, to be made anew.
//!
//! A plan that the writer would only wait for is written on the writer's own thread, while this one has
//! nothing to do: that spares a small commit the wait until another thread is awake.
//!
//! An error of the disk ends it for good: after a failed fsync nobody knows what is on the disk, so nothing
//! more is acknowledged until the file was opened again.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, JoinHandle},
};

use rusqlite::{Connection, config::DbConfig};
use tokio::sync::{mpsc::WeakSender, oneshot};

use super::{
    begun::Begun, checkpointer::Checkpointer, save, write_plan::WritePlan, writer_thread::Request,
};
use crate::{
    Error, Replies, Write,
    sqlite::{
        Bells, SqlResult, classify,
        file::{
            identity::FileIdentity,
            mark::{Mark, Point},
        },
    },
};

/// A batch, and the channel to the caller that waits for its replies.
pub(crate) struct CommitRequest {
    pub(crate) writes: Arc<Vec<Write>>,
    pub(crate) answer: oneshot::Sender<Result<Replies, Error>>,
}

/// A mutex that the writer holds while it has a read snapshot. The last pages of the WAL are
/// checkpointed while it is free: SQLite cannot checkpoint pages behind a snapshot that is open,
/// and the WAL would never restart from its beginning.
pub(crate) type Gate = Arc<Mutex<()>>;

/// What became of a plan. They come in the order of the plans.
pub(crate) enum Outcome {
    /// It is on the disk, and the caller is being answered.
    Told,
    /// It is on the disk. The replies, because the writer itself asked, and the number of the last
    /// event.
    Saved(Replies, u64),
    /// Nothing was written. The error, if nobody was told it; and whether the saver has ended.
    Failed { error: Option<Error>, ended: bool },
    /// Nothing was written, because a plan before it failed. The caller, if there is one, still
    /// waits.
    Skipped(Option<CommitRequest>),
}

/// Whose thread writes a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saves {
    /// The saver's own, while the writer makes the next plan.
    Saver,
    /// The writer's. No other plan may be on its way.
    Writer,
}

enum Task {
    Save(Save),
    Run(Box<dyn FnOnce(&mut Disk) + Send>),
    Close,
}

struct Save {
    plan: Arc<WritePlan>,
    replies: Replies,
    asked: Option<CommitRequest>,
    /// The incarnation in which it was made.
    incarnation: u32,
    /// How many plans had failed when it was made.
    failures: u64,
}

/// The way to the saver's thread. Dropping it waits until all is written; without [`Saver::close`] before, the
/// log stays beside the file: what comes after a failure is for the next start.
pub(crate) struct Saver {
    tasks: Option<SyncSender<Task>>,
    /// Locked by the thread that writes a plan: the saver's, or the writer's for a small commit.
    work: Arc<Mutex<Working>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
    failures: u64,
}

impl Saver {
    pub(crate) fn start(
        connection: Connection,
        files: Option<Files>,
        checkpointer: Option<Checkpointer>,
        gate: Gate,
        bells: Arc<Bells>,
        writer: WeakSender<Request>,
    ) -> Result<Self, Error> {
        // One plan is written and one waits: more would only be older when they are written.
        let (tasks, inbox) = sync_channel(1);
        let (told, outcomes) = channel();
        #[cfg(feature = "faults")]
        let connection = crate::crash::counted(connection);
        let disk = Disk { connection, files };
        let (failures, broken, ended) = (0, None, false);
        let work = Working {
            checkpointer,
            disk,
            gate,
            bells,
            outcomes: told,
            writer,
            failures,
            broken,
            ended,
        };
        let work = Arc::new(Mutex::new(work));
        let shared = work.clone();
        let thread = thread::Builder::new().name("windlass-saver".to_owned());
        let thread = thread.spawn(move || run(&shared, &inbox))?;
        Ok(Self { tasks: Some(tasks), work, outcomes, thread: Some(thread), failures: 0 })
    }

    /// Has a plan written. If nobody asked, the outcome has the replies.
    pub(crate) fn save(
        &self,
        plan: Arc<WritePlan>,
        replies: Replies,
        asked: Option<CommitRequest>,
        incarnation: u32,
        by: Saves,
    ) -> Result<(), Error> {
        let failures = self.failures;
        let task = Task::Save(Save { plan, replies, asked, incarnation, failures });
        match by {
            Saves::Saver => self.tasks().send(task).map_err(|_| ended()),
            Saves::Writer => {
                // If it ends with this one, the outcome says so.
                self.work.lock().map_err(|_| ended())?.does(task);
                Ok(())
            }
        }
    }

    /// An outcome, if there is one.
    pub(crate) fn try_outcome(&mut self) -> Option<Outcome> {
        let outcome = self.outcomes.try_recv().ok()?;
        Some(self.noted(outcome))
    }

    /// The next outcome.
    pub(crate) fn outcome(&mut self) -> Result<Outcome, Error> {
        let outcome = self.outcomes.recv().map_err(|_| ended())?;
        Ok(self.noted(outcome))
    }

    fn noted(&mut self, outcome: Outcome) -> Outcome {
        if let Outcome::Failed { .. } = outcome {
            self.failures += 1;
        }
        outcome
    }

    /// Has something else done with the database, after all plans, and waits for it.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Disk) -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = channel();
        let task = Task::Run(Box::new(move |disk| drop(answer.send(work(disk)))));
        self.tasks().send(task).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
    }

    /// Waits until all is written and the mark is on the disk, and checkpoints the log.
    pub(crate) fn close(self) {
        let _ = self.tasks().send(Task::Close);
    }

    fn tasks(&self) -> &SyncSender<Task> {
        self.tasks.as_ref().expect("it is there until this is dropped")
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the saver's thread owns.
pub(crate) struct Disk {
    pub(crate) connection: Connection,
    /// None, if the database is in memory.
    files: Option<Files>,
}

/// What is looked after with each commit to a file.
pub(crate) struct Files {
    pub(crate) identity: FileIdentity,
    pub(crate) mark: Mark,
}

impl Disk {
    /// Writes a plan, and gives back the number of the last event.
    fn save(&mut self, plan: &WritePlan, incarnation: u32) -> Result<u64, Error> {
        let event = if plan.is_empty() {
            plan.last_event
        } else {
            self.transact(plan).map_err(classify)?
        };
        let Self { connection, files } = &mut *self;
        files.as_mut().map_or(Ok(()), |files| files.identity.check(connection))?;
        self.note(Point { incarnation, event });
        Ok(event)
    }

    fn transact(&mut self, plan: &WritePlan) -> SqlResult<u64> {
        let transaction = Begun::to_write(&self.connection)?;
        save::save(&transaction, plan)?;
        let last_event = plan.inbox.save(&transaction, plan.last_event, plan.now)?;
        transaction.commit()?;
        Ok(last_event)
    }

    /// Marks how far the history went, before anyone is told.
    pub(crate) fn note(&mut self, point: Point) {
        if let Some(files) = &mut self.files {
            files.mark.note(point);
        }
    }

    /// Puts the mark on the disk.
    fn close(&mut self) {
        if let Some(files) = self.files.take() {
            files.mark.close();
        }
    }
}

struct Working {
    /// None, if the database is in memory. It lets go of the database before the last connection does.
    checkpointer: Option<Checkpointer>,
    disk: Disk,
    gate: Gate,
    bells: Arc<Bells>,
    outcomes: Sender<Outcome>,
    writer: WeakSender<Request>,
    /// How many plans have failed.
    failures: u64,
    /// A checkpoint failed for good. The next plan fails with this error.
    broken: Option<Error>,
    /// Nothing more is written.
    ended: bool,
}

/// What the saver's thread does.
fn run(work: &Mutex<Working>, tasks: &Receiver<Task>) {
    while let Ok(task) = tasks.recv() {
        // If the writer panicked while it wrote, nobody asks for anything more.
        let Ok(mut work) = work.lock() else { return };
        if !work.does(task) {
            return;
        }
    }
    if let Ok(mut work) = work.lock() {
        work.end();
    }
}

impl Working {
    /// Carries out one task. False, if the saver has to end.
    fn does(&mut self, task: Task) -> bool {
        if self.ended {
            return false;
        }
        let goes_on = match task {
            Task::Save(save) => self.save(save),
            Task::Run(work) => {
                work(&mut self.disk);
                true
            }
            Task::Close if self.broken.is_none() => {
                self.disk.close();
                self.ended = true;
                return false;
            }
            Task::Close => false,
        };
        if goes_on {
            // After the callers were answered: none of them waits for a checkpoint.
            self.broken = self.broken.take().or_else(|| self.tend_log().err());
        } else {
            self.end();
        }
        goes_on
    }

    fn tend_log(&self) -> Result<(), Error> {
        let checkpointer = self.checkpointer.as_ref();
        checkpointer.map_or(Ok(()), |it| it.tend(&self.disk.connection, &self.gate))
    }

    /// Ends the saver for good, and leaves the WAL as it is, without a checkpoint on close.
    fn end(&mut self) {
        if !mem::replace(&mut self.ended, true) {
            let connection = &self.disk.connection;
            let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }

    /// Writes a plan and tells of it. It says whether the saver may go on.
    ///
    /// The writer hears of it first: it must know when somebody who was told asks for more.
    fn save(&mut self, save: Save) -> bool {
        let Save { plan, replies, asked, incarnation, failures } = save;
        if failures != self.failures {
            drop(plan);
            let _ = self.outcomes.send(Outcome::Skipped(asked));
            return true;
        }
        let saved = match self.broken.take() {
            Some(error) => Err(error),
            None => self.disk.save(&plan, incarnation),
        };
        let news = plan.news;
        // Our reference goes first: when the outcome arrives the writer holds the only one, and
        // takes the rows out of the plan into its cache.
        drop(plan);
        if saved.is_ok() {
            self.bells.ring(&news);
        }
        match (saved, asked) {
            (Ok(_), Some(asked)) => {
                let _ = self.outcomes.send(Outcome::Told);
                let _ = asked.answer.send(Ok(replies));
                true
            }
            (Ok(last_event), None) => {
                let _ = self.outcomes.send(Outcome::Saved(replies, last_event));
                true
            }
            (Err(error), Some(asked)) => {
                let ended = ends(&error);
                self.fail(Outcome::Failed { error: None, ended });
                let _ = asked.answer.send(Err(error));
                !ended
            }
            (Err(error), None) => {
                let ended = ends(&error);
                self.fail(Outcome::Failed { error: Some(error), ended });
                !ended
            }
        }
    }

    fn fail(&mut self, outcome: Outcome) {
        self.failures += 1;
        let _ = self.outcomes.send(outcome);
        // It may be asleep, and there may be plans to be made anew. If it has too much to do, it looks anyway.
        if let Some(writer) = self.writer.upgrade() {
            let _ = writer.try_send(Request::Look);
        }
    }
}

/// Does this error end the store?
pub(crate) fn ends(error: &Error) -> bool {
    matches!(error, Error::Stopped(_) | Error::Damaged(_))
}

fn ended() -> Error {
    Error::Stopped("its writer has ended".to_owned())
}
