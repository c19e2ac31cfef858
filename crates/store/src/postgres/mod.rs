//! The store in a schema of a PostgreSQL database: several nodes, one truth.
//!
//! Each commit is one transaction on a connection of a pool (`writer`). Nodes know nothing of each other: what
//! keeps them apart are row locks, unique keys, and rows that are written only if they are still the ones that
//! were seen. Each call has a deadline. The clock that decides is the database's.

mod acts;
mod at_once;
mod causes;
mod check;
mod claim;
mod direct;
mod due;
mod failure;
mod first_load;
mod granted;
mod inbox;
mod list;
mod load;
mod log_rows;
mod marks;
mod names;
mod notes;
mod open;
mod partitions;
mod pipeline;
mod pool;
mod presence;
mod read;
mod ready;
mod retention;
mod rows;
mod rule_locks;
mod rules;
mod save;
mod schedules;
mod schema;
mod search;
mod server_time;
mod standing;
mod survey;
mod thin;
mod thread;
mod tokens;
mod traces;
mod transaction;
mod types;
mod verify;
mod wake;
mod way;
mod work;
mod writer;

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deadpool_postgres::ClientWrapper;
use tokio::time::timeout;
pub use tokio_postgres;
use tokio_postgres::Row;
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention, Rule,
    Schedule, ScheduleName, TaskId, TenantId, Timestamp, Token, TokenId, WorkerId,
};

pub use self::{
    check::check,
    inbox::{EnqueueInError, enqueue_in},
    open::{Options, Verify, remove, size_bytes},
    survey::{steps, survey},
};
use self::{
    failure::Failure,
    names::Names,
    pool::{Borrowed, Pool},
    retention::Sweep,
    thread::Thread,
    wake::Wake,
    work::Held,
};
use crate::{
    ClockStanding, Error, Listener, Overlap, Replies, Store, StoreFuture, Write,
    news::Sooner,
    read::{
        AttemptsPage, Cursor, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter,
        LetterFilter, LetterGroups, ListeningWorker, OldestReady, Output, Page, Progress, Pruned,
        Scope, SessionView, Standing, StoredFollowUp, Traces, Verified,
    },
};

type PgResult<T> = Result<T, Failure>;

/// Tells the time in place of the database's clock.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A store in a schema of a PostgreSQL database.
///
/// Dropping it closes its connections. What was asked for and not answered may or may not be done.
pub struct Postgres {
    inner: Arc<Inner>,
    thread: Thread,
}

/// What all calls share.
struct Inner {
    pool: Pool,
    time: Arc<server_time::ServerTime>,
    deadline: Duration,
    names: Names,
    rules: rules::Rules,
    ready: ready::Ready,
    held: Mutex<Held>,
    sweep: tokio::sync::Mutex<Sweep>,
    wake: Wake,
    sooner: Sooner,
    presence: presence::Presence,
    /// Who has this lock gives out the next numbers of events.
    feed_lock: (i32, i32),
    /// The incarnation whose older leases were ended.
    incarnation: AtomicU32,
}

impl Postgres {
    /// Connects, brings the schema up to date and starts to listen.
    pub async fn open(options: Options) -> Result<Self, Error> {
        let thread = Thread::start()?;
        let open = async move {
            let inner = Arc::new(open::open(options).await?);
            inner.settle_in().await?;
            while inner.with_client(causes::make).await? {}
            wake::start(&inner);
            Ok(inner)
        };
        Ok(Self { inner: thread.run(open).await?, thread })
    }

    /// Has it done on the thread of the store.
    fn ask<T, F>(&self, call: impl FnOnce(Arc<Inner>) -> F) -> StoreFuture<'_, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        Box::pin(self.thread.run(call(self.inner.clone())))
    }
}

impl Inner {
    /// A connection that is free.
    async fn client(&self) -> PgResult<Borrowed> {
        self.within(self.pool.get()).await
    }

    /// Reads something.
    async fn with_client<T>(
        &self,
        read: impl AsyncFnOnce(&ClientWrapper) -> PgResult<T>,
    ) -> Result<T, Error> {
        let mut client = self.client().await.map_err(Failure::into_error)?;
        let found = self.within(read(client.get())).await;
        if found.as_ref().err().is_none_or(|error| !error.is_unknown()) {
            client.give_back();
        }
        found.map_err(Failure::into_error)
    }

    /// Reads what belongs to a job. A job that is committed and still waits in the inbox is promoted first.
    async fn read_of<T>(
        &self,
        id: JobId,
        is_missing: fn(&T) -> bool,
        read: impl AsyncFn(&ClientWrapper) -> PgResult<T>,
    ) -> Result<T, Error> {
        loop {
            let look = async |client: &ClientWrapper| {
                let found = read(client).await?;
                if !is_missing(&found) {
                    return Ok(Some(found));
                }
                if inbox::is_waiting(client, id).await? {
                    return Ok(None);
                }
                // It may have been promoted between the two.
                read(client).await.map(Some)
            };
            if let Some(found) = self.with_client(look).await? {
                return Ok(found);
            }
            // Each commit takes a bounded part of the inbox, so this ends.
            self.commit(&[]).await?;
        }
    }

    /// Waits for an answer, but not for ever.
    async fn within<T, E: Into<Failure>>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> PgResult<T> {
        match timeout(self.deadline, call).await {
            Ok(answer) => answer.map_err(Into::into),
            Err(_) => Err(Failure::TimedOut(self.deadline)),
        }
    }

    /// Who has this lock promotes what waits in the inbox.
    fn inbox_lock(&self) -> (i32, i32) {
        (self.feed_lock.0 + 4, self.feed_lock.1)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What has to be done before the first commit.
    async fn settle_in(&self) -> Result<(), Error> {
        let incarnation = self
            .with_client(async |client| {
                self.names.learn(client).await?;
                self.rules.learn(client).await?;
                due::read_now(client, &self.time).await?;
                open::read_incarnation(client).await
            })
            .await?;
        self.end_old_leases(incarnation).await?;
        self.incarnation.store(incarnation, Ordering::SeqCst);
        Ok(())
    }

    /// The incarnation whose older leases were ended, and the table that it stands in.
    fn identity(&self) -> (i64, i64) {
        let incarnation = i64::from(self.incarnation.load(Ordering::SeqCst));
        (incarnation, i64::from(self.feed_lock.1.cast_unsigned()))
    }

    fn is_new(&self, incarnation: u32) -> bool {
        self.incarnation.load(Ordering::SeqCst) < incarnation
    }

    /// Anybody may have put anything anywhere.
    fn forget_ready(&self) {
        self.names.forget_floors();
        self.ready.hear();
    }

    /// Looks whether the store that a commit has met is still the one that was opened, and tells whether it has another
    /// incarnation by now.
    ///
    /// Whoever restores a dump puts other tables in the place of those that were there, and all locks of this store are
    /// named after one of them: a node that went on would not be kept apart from others.
    fn meet(&self, moment: &Row) -> PgResult<bool> {
        let found: Option<i64> = moment.try_get(transaction::FOUND_META)?;
        let found = found.ok_or_else(|| Failure::damaged("meta has no incarnation"))?;
        if u32::try_from(found).ok().map(u32::cast_signed) != Some(self.feed_lock.1) {
            let why = "its tables were replaced while this process ran, as a restore does; \
                       start this process again";
            return Err(Failure::Known(Error::Stopped(why.to_owned())));
        }
        let incarnation = load::number(moment, transaction::FOUND_INCARNATION)?;
        Ok(self.is_new(u32::try_from(incarnation).unwrap_or(u32::MAX)))
    }

    /// A commit has seen this incarnation. If it is a new one, the server is not the one it was: nothing that
    /// is remembered holds, and older leases have to end.
    fn note_incarnation(&self, incarnation: u32) {
        if self.is_new(incarnation) {
            self.held().clear();
            self.forget_ready();
            self.wake.look_around();
        }
    }
}

impl Store for Postgres {
    /// The server works on one commit while another waits for the disk or for the line.
    fn overlap(&self) -> Overlap {
        Overlap { commits_max: 2, writes_min: 16 }
    }

    /// A claim that a shared rule covers holds its lock until it has landed.
    fn claims_wait(&self) -> bool {
        self.inner.rules.claims_wait()
    }

    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        self.ask(|inner| async move {
            let commit = inner.commit(&writes);
            #[cfg(feature = "faults")]
            let commit = crate::crash::counting(commit);
            commit.await
        })
    }

    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |client| {
                    Ok(read::read_job(client, &scope, id).await?.map(|loaded| loaded.job))
                })
                .await
        })
    }

    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>> {
        let (scope, task) = (scope.clone(), task.clone());
        self.ask(move |inner| async move {
            let read =
                async move |it: &ClientWrapper| read::read_newest_of_task(it, &scope, &task).await;
            inner.with_client(read).await
        })
    }

    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |it| {
                    read::read_payload(it, &scope, id).await
                })
                .await
        })
    }

    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| read::read_last_output(it, &scope, id).await).await
        })
    }

    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| read::read_progress(it, &scope, id).await).await
        })
    }

    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Vec::is_empty, async move |it| read::read_events(it, &scope, id).await)
                .await
        })
    }

    fn events_after(
        &self,
        scope: &Scope,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<EventsPage>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |it| {
                    read::read_events_after(it, &scope, id, after, limit).await
                })
                .await
        })
    }

    fn traces(&self, scope: &Scope, ids: Vec<JobId>) -> StoreFuture<'_, Traces> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| traces::read_traces(it, &scope, &ids).await).await
        })
    }

    fn verify(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Verified>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |it| {
                    verify::read_verified(it, &scope, id).await
                })
                .await
        })
    }

    fn attempts(
        &self,
        scope: &Scope,
        id: JobId,
        after: u32,
        limit: usize,
    ) -> StoreFuture<'_, AttemptsPage> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(
                    id,
                    |page: &AttemptsPage| page.items.is_empty(),
                    async move |it| read::read_attempts(it, &scope, id, (after, limit)).await,
                )
                .await
        })
    }

    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| read::read_letter(it, &scope, id).await).await
        })
    }

    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| read::read_approvals(it, &scope, id).await).await
        })
    }

    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |client| read::read_open_jobs(client).await).await
        })
    }

    fn jobs(&self, filter: JobFilter, cursor: Cursor) -> StoreFuture<'_, Page<Job>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| list::read_jobs(it, &filter, cursor).await).await
        })
    }

    fn letters(&self, filter: LetterFilter, cursor: Cursor) -> StoreFuture<'_, Page<DeadLetter>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| list::read_letters(it, &filter, cursor).await).await
        })
    }

    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            let read = async move |it: &ClientWrapper| causes::read_groups(it, &scope, state).await;
            inner.with_client(read).await
        })
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |client| read::read_sessions(client).await).await
        })
    }

    fn listening(&self, scope: &Scope) -> StoreFuture<'_, Vec<ListeningWorker>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            let class = inner.presence_class();
            let look = async |client: &ClientWrapper| {
                standing::read_workers(client, &scope, &inner.time, class).await
            };
            inner.with_client(look).await
        })
    }

    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .with_client(async move |client| read::read_oldest_ready(client, &scope).await)
                .await
        })
    }

    fn feed(&self, scope: &Scope, after: u64, rows: u32) -> StoreFuture<'_, Feed> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| read::read_feed(it, &scope, after, rows).await).await
        })
    }

    fn feed_end(&self) -> StoreFuture<'_, u64> {
        self.ask(move |inner| async move {
            inner.with_client(async move |client| read::read_feed_end(client).await).await
        })
    }

    fn notes(
        &self,
        tenant: &TenantId,
        about: &About,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>> {
        let (tenant, about) = (tenant.clone(), about.clone());
        self.ask(move |inner| async move {
            let read = async |client: &ClientWrapper| {
                notes::read_notes(client, &tenant, &about, before, limit).await
            };
            inner.with_client(read).await
        })
    }

    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            let read = async |it: &ClientWrapper| acts::read_acts(it, &scope, before, limit).await;
            inner.with_client(read).await
        })
    }

    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| tokens::read_token(it, id).await).await
        })
    }

    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| tokens::read_tokens(it, &scope).await).await
        })
    }

    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>> {
        let name = name.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| marks::read_mark(it, &name).await).await
        })
    }

    fn schedule(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> StoreFuture<'_, Option<Schedule>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.ask(move |inner| async move {
            let read = async |client: &ClientWrapper| {
                schedules::read_schedule(client, &tenant, &name).await
            };
            inner.with_client(read).await
        })
    }

    fn schedules(
        &self,
        tenant: &TenantId,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Schedule>> {
        let (tenant, after) = (tenant.clone(), after.cloned());
        self.ask(move |inner| async move {
            let read = async |client: &ClientWrapper| {
                schedules::read_schedules(client, &tenant, after.as_ref(), limit).await
            };
            inner.with_client(read).await
        })
    }

    fn inbox_result(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<InboxResult>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |it| {
                    inbox::read_result(it, &scope, id).await
                })
                .await
        })
    }

    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned> {
        self.ask(move |inner| async move { inner.prune(&retention, max).await })
    }

    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |client| read::read_counts(client, &scope).await).await
        })
    }

    fn raise_incarnation(&self) -> StoreFuture<'_, ()> {
        self.ask(|inner| async move {
            let raise = async |client: &ClientWrapper| open::raise_incarnation(client).await;
            let incarnation = inner.with_client(raise).await?;
            inner.held().clear();
            inner.incarnation.fetch_max(incarnation, Ordering::SeqCst);
            Ok(())
        })
    }

    fn ready(&self) -> Listener {
        self.inner.wake.listen()
    }

    fn sooner(&self) -> Listener {
        self.inner.sooner.listen()
    }

    fn due(&self, max: usize) -> StoreFuture<'_, Due> {
        self.ask(move |inner| async move { inner.due(max).await })
    }

    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| read::read_follow_ups(it, max).await).await
        })
    }

    fn open_children(
        &self,
        tenant: &TenantId,
        parent: JobId,
        after: Option<JobId>,
        max: usize,
    ) -> StoreFuture<'_, Vec<JobId>> {
        let tenant = tenant.clone();
        self.ask(move |inner| async move {
            let read = async move |it: &ClientWrapper| {
                read::read_open_children(it, &tenant, parent, after, max).await
            };
            inner.with_client(read).await
        })
    }

    fn vouch(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        let worker = worker.clone();
        self.ask(|inner| async move { inner.vouch(&worker).await })
    }

    fn stop_vouching(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        let worker = worker.clone();
        self.ask(|inner| async move { inner.stop_vouching(&worker).await })
    }

    fn dead_workers(&self) -> StoreFuture<'_, Vec<WorkerId>> {
        self.ask(|inner| async move { inner.dead_workers().await })
    }

    fn held_by(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> StoreFuture<'_, Vec<(TenantId, JobId, u64)>> {
        let worker = worker.clone();
        self.ask(move |inner| async move { inner.held_by(&worker, max).await })
    }

    fn rules(&self) -> StoreFuture<'_, Vec<Rule>> {
        let read = async |client: &ClientWrapper| rules::load_edition(client).await;
        self.ask(|inner| async move { Ok(inner.with_client(read).await?.rules.to_vec()) })
    }

    fn standing(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Standing>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            let (time, presence_class) = (inner.time.clone(), inner.presence_class());
            let look = standing::Look { scope, id, time, presence_class };
            inner.read_of(id, Option::is_none, async move |it| look.read(it).await).await
        })
    }

    fn health(&self) -> StoreFuture<'_, ()> {
        let look = async |client: &ClientWrapper| open::look(client).await;
        self.ask(|inner| async move { inner.with_client(look).await })
    }

    fn clock(&self) -> ClockStanding {
        self.inner.time.standing()
    }
}

/// Sixteen random bytes, for names that nobody else gives.
#[expect(
    clippy::disallowed_methods,
    reason = "names of commits and pauses between tries, which decide nothing about jobs"
)]
fn random_id() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    u128::from_be_bytes(bytes)
}
