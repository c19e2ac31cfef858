//! The line from a node to the store: it takes time, it is cut, and it loses answers.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::sleep;
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention,
    Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};
use windlass_store::{
    ClockStanding, Error, Listener, Overlap, Replies, Store, StoreFuture, Write,
    read::{
        AttemptsPage, Cursor, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter,
        LetterFilter, LetterGroups, Listens, OldestReady, Output, Page, Progress, Pruned, Scope,
        SessionView, StoredFollowUp, Verified,
    },
    sqlite::Sqlite,
};

use crate::chance::Chance;

/// How a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weather {
    Fine,
    /// Nothing gets through.
    Cut,
    /// What is sent arrives, and some answers do not.
    LosesAnswers,
}

/// A line to the store, which the store's other lines know nothing of.
pub(crate) struct Line {
    store: Arc<Sqlite>,
    chance: Chance,
    weather: Mutex<Weather>,
    lost_answers: AtomicU64,
    /// Workers that are proven dead, for all lines.
    dead: Arc<Mutex<BTreeSet<WorkerId>>>,
}

impl Line {
    pub(crate) fn new(
        store: Arc<Sqlite>,
        chance: Chance,
        dead: Arc<Mutex<BTreeSet<WorkerId>>>,
    ) -> Self {
        let (weather, lost_answers) = (Mutex::new(Weather::Fine), AtomicU64::new(0));
        Self { store, chance, weather, lost_answers, dead }
    }

    pub(crate) fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    pub(crate) fn lost_answers(&self) -> u64 {
        self.lost_answers.load(Ordering::SeqCst)
    }

    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap()
    }

    /// There and back, if it can be reached.
    async fn over<T>(&self, call: StoreFuture<'_, T>) -> Result<T, Error> {
        sleep(Duration::from_micros(self.chance.below(3_000))).await;
        if self.weather() == Weather::Cut {
            sleep(self.chance.ms(10, 2_000)).await;
            return Err(Error::Unavailable("the line is cut".into()));
        }
        let answer = call.await;
        sleep(Duration::from_micros(self.chance.below(1_000))).await;
        answer
    }
}

/// What only reads, or may be done twice.
macro_rules! over {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> StoreFuture<'_, $answer> {
            Box::pin(self.over(self.store.$name($($arg),*)))
        })*
    };
}

impl Store for Line {
    fn overlap(&self) -> Overlap {
        self.store.overlap()
    }

    fn claims_wait(&self) -> bool {
        self.store.claims_wait()
    }

    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(async move {
            let replies = self.over(self.store.commit(writes)).await?;
            if self.weather() == Weather::LosesAnswers && self.chance.percent(30) {
                self.lost_answers.fetch_add(1, Ordering::SeqCst);
                sleep(self.chance.ms(10, 2_000)).await;
                return Err(Error::Ambiguous("the answer was lost".into()));
            }
            Ok(replies)
        })
    }

    over! {
        job(scope: &Scope, id: JobId) -> Option<Job>;
        newest_of_task(scope: &Scope, task: &TaskId) -> Option<Job>;
        payload(scope: &Scope, id: JobId) -> Option<String>;
        last_output(scope: &Scope, id: JobId) -> Option<Output>;
        progress(scope: &Scope, id: JobId) -> Option<Progress>;
        events(scope: &Scope, id: JobId) -> Vec<Event>;
        events_after(scope: &Scope, id: JobId, after: u64, limit: usize) -> Option<EventsPage>;
        verify(scope: &Scope, id: JobId) -> Option<Verified>;
        attempts(scope: &Scope, id: JobId, after: u32, limit: usize) -> AttemptsPage;
        letter(scope: &Scope, id: DlqId) -> Option<DeadLetter>;
        approvals(scope: &Scope, id: DlqId) -> Vec<Approval>;
        open_jobs() -> Vec<Job>;
        jobs(filter: JobFilter, cursor: Cursor) -> Page<Job>;
        letters(filter: LetterFilter, cursor: Cursor) -> Page<DeadLetter>;
        letter_groups(scope: &Scope, state: LetterState) -> LetterGroups;
        sessions() -> Vec<SessionView>;
        listening(scope: &Scope) -> Vec<(WorkerId, Listens)>;
        oldest_ready(scope: &Scope) -> Vec<OldestReady>;
        feed(scope: &Scope, after: u64, rows: u32) -> Feed;
        feed_end() -> u64;
        notes(tenant: &TenantId, about: &About, before: u64, limit: usize) -> Vec<FeedEvent>;
        acts(scope: &Scope, before: u64, limit: usize) -> Vec<FeedEvent>;
        token(id: TokenId) -> Option<Token>;
        tokens(scope: &Scope) -> Vec<Token>;
        mark(name: &MarkName) -> Option<u64>;
        schedule(tenant: &TenantId, name: &ScheduleName) -> Option<Schedule>;
        schedules(
            tenant: &TenantId, after: Option<&ScheduleName>, limit: usize
        ) -> Vec<Schedule>;
        inbox_result(scope: &Scope, id: JobId) -> Option<InboxResult>;
        prune(retention: Retention, max: usize) -> Pruned;
        counts(scope: &Scope) -> Vec<(String, String, u64)>;
        raise_incarnation() -> ();
        due(max: usize) -> Due;
        follow_ups(max: usize) -> Vec<StoredFollowUp>;
        open_children(tenant: &TenantId, parent: JobId, max: usize) -> Vec<JobId>;
        vouch(worker: &WorkerId) -> ();
        held_by(worker: &WorkerId, max: usize) -> Vec<(TenantId, JobId, u64)>;
        rules() -> Vec<windlass_kernel::Rule>;
        standing(scope: &Scope, id: JobId) -> Option<windlass_store::read::Standing>;
        health() -> ();
    }

    fn ready(&self) -> Listener {
        self.store.ready()
    }

    fn sooner(&self) -> Listener {
        self.store.sooner()
    }

    fn stop_vouching(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        let worker = worker.clone();
        Box::pin(async move {
            self.over(self.store.stop_vouching(&worker)).await?;
            self.dead.lock().unwrap().remove(&worker);
            Ok(())
        })
    }

    fn dead_workers(&self) -> StoreFuture<'_, Vec<WorkerId>> {
        let dead: Vec<WorkerId> = self.dead.lock().unwrap().iter().cloned().collect();
        Box::pin(self.over(Box::pin(async move { Ok(dead) })))
    }
    fn clock(&self) -> ClockStanding {
        self.store.clock()
    }
}
