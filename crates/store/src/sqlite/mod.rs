//! The store in one SQLite file: no set-up, one process.
//!
//! One thread decides what is written (`writer`), another owns the only connection that writes (`saver`);
//! a few more read (`readers`). The file is locked for as long as it is open (`lock`): a second process is refused
//! and told who has it. A mark beside the file (`mark`) tells at the next start if something is gone.
//!
//! Other connections of the process may write to tables of their own, and to one of ours: the inbox. What
//! they leave there the writer promotes (`inbox`), and a thread notices it (`wake`).
//!
//! For tests the same store can be in memory (`memory`), and can answer on the spot (`wait`).

mod acts;
mod backup;
mod begun;
mod causes;
mod check;
mod claim;
mod copy;
mod decide;
mod due;
mod folder;
mod granted;
mod inbox;
mod list;
mod load;
mod lock;
mod mark;
mod marks;
mod memory;
mod named;
mod names;
mod notes;
mod now;
mod open;
mod place;
mod plan;
mod presence;
mod private;
mod read;
mod readers;
mod ready;
mod rest;
mod restore;
mod retention;
mod rules;
mod save;
mod saver;
mod schedules;
mod standing;
mod survey;
mod thin;
mod tokens;
mod traces;
mod verify;
mod wait;
mod wake;
mod work;
mod writer;
mod writer_thread;

use std::{path::PathBuf, sync::Arc};

use rusqlite::{Connection, ErrorCode, ffi};
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention, Rule,
    Schedule, ScheduleName, TaskId, TenantId, Timestamp, Token, TokenId, WorkerId,
};

#[cfg(feature = "postgres")]
pub(crate) use self::check::Copy;
pub use self::{
    backup::{BackedUp, BackupOptions, backup},
    check::check,
    copy::Copied,
    inbox::{EnqueueInError, enqueue_in},
    memory::MemoryOptions,
    restore::{Restored, restore},
    survey::{steps, survey},
};
use self::{
    lock::Lock, names::Stored, now::Now, open::Opened, place::Place, presence::Presence,
    readers::Readers, wait::Wait, wake::Watch, writer::OVERLAP, writer_thread::WriterThread,
};
use crate::{
    Bell, ClockStanding, Error, Listener, Overlap, Replies, Store, StoreFuture, Ticks, Write,
    news::{News, Sooner},
    read::{
        AttemptsPage, Cursor, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter,
        LetterFilter, LetterGroups, ListeningWorker, OldestReady, Output, Page, Progress, Pruned,
        Scope, SessionView, Standing, StoredFollowUp, Traces, Verified,
    },
};

type SqlResult<T> = rusqlite::Result<T>;

/// Tells the time. It is asked inside each transaction.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// How a file is opened.
pub struct Options {
    /// The file. It is made if it is not there; its folder is not.
    pub path: PathBuf,
    /// The clock that decides leases.
    pub clock: Clock,
    /// The monotonic clock that goes with it, such as [`uptime`](crate::uptime): by it time goes on when the clock is
    /// set back, and a jump ahead is noticed. Without it the clock is all there is, as for a test that sets it.
    pub ticks: Option<Ticks>,
    /// Where this process answers. Whoever finds the file in use is told.
    pub address: Option<String>,
}

/// A store in one SQLite file, or in memory.
///
/// Dropping it closes it well: what was asked is written, the log is folded into the file, and the mark
/// is on the disk. The fields are dropped in their order, so the lock is the last to go.
pub struct Sqlite {
    _watch: Option<Watch>,
    readers: Readers,
    writer: WriterThread,
    now: Arc<Now>,
    bells: Arc<Bells>,
    presence: Presence,
    place: Place,
    _lock: Option<Lock>,
}

/// What those who wait hear of commits.
#[derive(Default)]
struct Bells {
    ready: Bell,
    sooner: Sooner,
}

impl Bells {
    /// A commit is durable that brings this.
    fn ring(&self, news: &News) {
        if news.is_ready {
            self.ready.ring();
        }
        self.sooner.tell(news);
    }
}

impl Sqlite {
    /// Opens the file, brings its schema up to date and starts the writer.
    pub fn open(options: Options) -> Result<Self, Error> {
        let opened = open::open(&options.path, options.address.as_deref())?;
        Self::start(opened, Now::new(options.clock, options.ticks), Wait::Task)
    }

    fn start(opened: Opened, now: Now, wait: Wait) -> Result<Self, Error> {
        let Opened { place, connection, lock, files } = opened;
        let (now, bells) = (Arc::new(now), Arc::<Bells>::default());
        let (shared_now, told) = (now.clone(), bells.clone());
        let writer = WriterThread::start(connection, &place, files, shared_now, told, wait)?;
        let readers = Readers::open(&place, wait)?;
        let watch = match wait {
            Wait::Task => Some(Watch::start(&place, writer.promoter())?),
            // It would act by the time of the machine.
            Wait::Thread => None,
        };
        let presence = Presence::default();
        Ok(Self { _watch: watch, readers, writer, now, bells, presence, place, _lock: lock })
    }

    /// A connection of the caller's own to the same database, for tables of their own and for [`enqueue_in`].
    /// What it writes should begin with `BEGIN IMMEDIATE`: a transaction that first reads and then writes is
    /// refused when somebody else has written in between.
    pub fn connect(&self) -> Result<Connection, Error> {
        self.place.connect()
    }

    /// What time has brought. What is committed meanwhile is told.
    async fn look(&self, max: usize) -> Result<Due, Error> {
        let (look, now, max) = (self.bells.sooner.look(), self.now.get(), max.max(1));
        let found = self.readers.read(move |it| Ok(Ok(due::look(it, max, now)?))).await?;
        let due = found.share(max);
        look.found(&due);
        Ok(due)
    }

    /// Reads what belongs to a job. A job that is committed and still waits in the inbox is promoted first.
    async fn read_of<T, R>(
        &self,
        id: JobId,
        is_missing: fn(&T) -> bool,
        read: R,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        R: Fn(&Connection) -> SqlResult<Result<T, Error>> + Clone + Send + 'static,
    {
        loop {
            let read = read.clone();
            let look = move |snapshot: &Connection| {
                let found = match read(snapshot)? {
                    Ok(found) => found,
                    Err(error) => return Ok(Err(error)),
                };
                let waits = is_missing(&found) && inbox::is_waiting(snapshot, id)?;
                Ok(Ok((found, waits)))
            };
            match self.readers.read(look).await? {
                (found, false) => return Ok(found),
                // Each commit takes a bounded part of the inbox, in order, so this ends.
                (_, true) => self.writer.commit(Arc::default()).await.map(drop)?,
            }
        }
    }
}

impl Store for Sqlite {
    /// One commit is decided while another is written. In memory there is no disk to wait for.
    fn overlap(&self) -> Overlap {
        match self.place {
            Place::File(_) => OVERLAP,
            Place::Memory(_) => Overlap::NONE,
        }
    }

    /// The one writer decides a claim on top of those that are on their way.
    fn claims_wait(&self) -> bool {
        false
    }

    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(self.writer.commit(writes))
    }

    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>> {
        let scope = scope.clone();
        Box::pin(self.read_of(id, Option::is_none, move |snapshot| {
            Ok(Ok(read::read_job(snapshot, &scope, id)?.map(|loaded| loaded.job)))
        }))
    }

    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>> {
        let (scope, task) = (scope.clone(), task.clone());
        let read = move |it: &Connection| read::read_newest_of_task(it, &scope, &task);
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(read(snapshot)?))))
    }

    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>> {
        let scope = scope.clone();
        let read = move |snapshot: &Connection| Ok(Ok(read::read_payload(snapshot, &scope, id)?));
        Box::pin(self.read_of(id, Option::is_none, read))
    }

    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>> {
        let scope = scope.clone();
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(read::read_last_output(snapshot, &scope, id)?))),
        )
    }

    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>> {
        let scope = scope.clone();
        Box::pin(
            self.readers.read(move |snapshot| Ok(Ok(read::read_progress(snapshot, &scope, id)?))),
        )
    }

    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>> {
        let scope = scope.clone();
        Box::pin(self.read_of(id, Vec::is_empty, move |it| read::read_events(it, &scope, id)))
    }

    fn events_after(
        &self,
        scope: &Scope,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<EventsPage>> {
        let scope = scope.clone();
        let read = move |it: &Connection| read::read_events_after(it, &scope, id, after, limit);
        Box::pin(self.read_of(id, Option::is_none, read))
    }

    fn traces(&self, scope: &Scope, ids: Vec<JobId>) -> StoreFuture<'_, Traces> {
        let scope = scope.clone();
        let read = move |it: &Connection| Ok(Ok(traces::read_traces(it, &scope, &ids)?));
        Box::pin(self.readers.read(read))
    }

    fn verify(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Verified>> {
        let scope = scope.clone();
        let read =
            move |snapshot: &Connection| Ok(Ok(verify::read_verified(snapshot, &scope, id)?));
        Box::pin(self.read_of(id, Option::is_none, read))
    }

    fn attempts(
        &self,
        scope: &Scope,
        id: JobId,
        after: u32,
        limit: usize,
    ) -> StoreFuture<'_, AttemptsPage> {
        let scope = scope.clone();
        let read = move |it: &Connection| read::read_attempts(it, &scope, id, (after, limit));
        Box::pin(self.read_of(id, |page: &AttemptsPage| page.items.is_empty(), read))
    }

    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>> {
        let scope = scope.clone();
        Box::pin(
            self.readers.read(move |snapshot| Ok(Ok(read::read_letter(snapshot, &scope, id)?))),
        )
    }

    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>> {
        let scope = scope.clone();
        Box::pin(
            self.readers.read(move |snapshot| Ok(Ok(read::read_approvals(snapshot, &scope, id)?))),
        )
    }

    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(self.readers.read(move |snapshot| {
            let jobs = load::load_open_jobs(snapshot, &Stored(snapshot))?;
            Ok(Ok(jobs.into_iter().map(|loaded| loaded.job).collect()))
        }))
    }

    fn jobs(&self, filter: JobFilter, cursor: Cursor) -> StoreFuture<'_, Page<Job>> {
        Box::pin(self.readers.read(move |it| Ok(Ok(list::read_jobs(it, &filter, cursor)?))))
    }

    fn letters(&self, filter: LetterFilter, cursor: Cursor) -> StoreFuture<'_, Page<DeadLetter>> {
        Box::pin(self.readers.read(move |it| Ok(Ok(list::read_letters(it, &filter, cursor)?))))
    }

    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |it| Ok(Ok(causes::read_groups(it, &scope, state)?))))
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>> {
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(read::read_sessions(snapshot)?))))
    }

    fn listening(&self, scope: &Scope) -> StoreFuture<'_, Vec<ListeningWorker>> {
        let scope = scope.clone();
        Box::pin(async move {
            let now = self.now.get();
            let read = move |it: &Connection| Ok(Ok(standing::read_listening(it, now)?));
            let mut listening = self.readers.read(read).await?;
            self.keep_those_there(&mut listening);
            listening.retain(|it| it.listens.is_seen_by(&scope));
            Ok(listening)
        })
    }

    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>> {
        let scope = scope.clone();
        Box::pin(
            self.readers.read(move |snapshot| Ok(Ok(read::read_oldest_ready(snapshot, &scope)?))),
        )
    }

    fn feed(&self, scope: &Scope, after: u64, rows: u32) -> StoreFuture<'_, Feed> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |snapshot| read::read_feed(snapshot, &scope, after, rows)))
    }

    fn feed_end(&self) -> StoreFuture<'_, u64> {
        Box::pin(self.readers.read(|snapshot| Ok(Ok(read::read_feed_end(snapshot)?))))
    }

    fn notes(
        &self,
        tenant: &TenantId,
        about: &About,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>> {
        let (tenant, about) = (tenant.clone(), about.clone());
        Box::pin(
            self.readers
                .read(move |snapshot| notes::read_notes(snapshot, &tenant, &about, before, limit)),
        )
    }

    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |it| acts::read_acts(it, &scope, before, limit)))
    }

    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>> {
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(tokens::read_token(snapshot, id)?))))
    }

    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |it| Ok(Ok(tokens::read_tokens(it, &scope)?))))
    }

    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>> {
        let name = name.clone();
        Box::pin(self.readers.read(move |it| Ok(Ok(marks::read_mark(it, &name)?))))
    }

    fn schedule(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> StoreFuture<'_, Option<Schedule>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(schedules::read_schedule(snapshot, &tenant, &name)?))),
        )
    }

    fn schedules(
        &self,
        tenant: &TenantId,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Schedule>> {
        let (tenant, after) = (tenant.clone(), after.cloned());
        Box::pin(self.readers.read(move |snapshot| {
            Ok(Ok(schedules::read_schedules(snapshot, &tenant, after.as_ref(), limit)?))
        }))
    }

    fn inbox_result(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<InboxResult>> {
        let scope = scope.clone();
        let read = move |snapshot: &Connection| Ok(Ok(inbox::read_result(snapshot, &scope, id)?));
        Box::pin(self.read_of(id, Option::is_none, read))
    }

    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned> {
        Box::pin(self.writer.prune(retention, max))
    }

    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(read::read_counts(snapshot, &scope)?))))
    }

    fn raise_incarnation(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.raise_incarnation())
    }

    fn ready(&self) -> Listener {
        self.bells.ready.listen()
    }

    fn sooner(&self) -> Listener {
        self.bells.sooner.listen()
    }

    fn due(&self, max: usize) -> StoreFuture<'_, Due> {
        Box::pin(self.look(max))
    }

    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>> {
        Box::pin(self.readers.read(move |it| Ok(Ok(read::read_follow_ups(it, max)?))))
    }

    fn open_children(
        &self,
        tenant: &TenantId,
        parent: JobId,
        after: Option<JobId>,
        max: usize,
    ) -> StoreFuture<'_, Vec<JobId>> {
        let tenant = tenant.clone();
        let read = move |it: &Connection| read::read_open_children(it, &tenant, parent, after, max);
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(read(snapshot)?))))
    }

    fn vouch(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        Box::pin(self.vouch_for(worker.clone()))
    }

    fn stop_vouching(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        Box::pin(self.vouch_no_more(worker.clone()))
    }

    fn dead_workers(&self) -> StoreFuture<'_, Vec<WorkerId>> {
        Box::pin(self.dead())
    }

    fn held_by(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> StoreFuture<'_, Vec<(TenantId, JobId, u64)>> {
        let worker = worker.clone();
        let read = move |it: &Connection| presence::read_held_by(it, &worker, max);
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(read(snapshot)?))))
    }

    fn rules(&self) -> StoreFuture<'_, Vec<Rule>> {
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(rules::read_rules(snapshot)?))))
    }

    fn standing(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Standing>> {
        let scope = scope.clone();
        Box::pin(async move {
            let now = self.now.get();
            let read = move |it: &Connection| Ok(Ok(standing::read_standing(it, &scope, id, now)?));
            let standing = self.read_of(id, Option::is_none, read).await?;
            Ok(standing.map(|mut standing| {
                self.keep_those_there(&mut standing.listening);
                standing
            }))
        })
    }

    /// A commit without a write goes all the way to whoever writes.
    fn health(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.writer.commit(Arc::default()).await.map(drop) })
    }

    fn clock(&self) -> ClockStanding {
        self.now.standing()
    }
}

/// What an error of SQLite means to the caller.
fn classify(error: rusqlite::Error) -> Error {
    let extended = error.sqlite_error().map(|error| error.extended_code);
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::DiskFull(error.into()),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            Error::Damaged(error.to_string())
        }
        Some(ErrorCode::SystemIoFailure) if extended != Some(ffi::SQLITE_IOERR_READ) => {
            Error::Stopped(format!("the disk failed: {error}"))
        }
        Some(ErrorCode::ConstraintViolation) => Error::Contradiction(error.into()),
        Some(_) => Error::Unavailable(error.into()),
        // SQLite did its part, and the row is not what it has to be.
        None => Error::Damaged(error.to_string()),
    }
}
