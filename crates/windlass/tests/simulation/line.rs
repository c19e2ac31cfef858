//! The line from a worker to the store: it takes time, it is cut, and it loses answers.
//!
//! It may lead by way of several nodes, as behind a load balancer: then each call takes another way than the one before, and
//! each way has a weather of its own. What is refused is noted, to be held against the history.

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
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Op, Refusal,
    Retention, Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};
use windlass_store::{
    ClockStanding, Commit, Error, Inspect, Keep, Listener, Overlap, ReadFeed, ReadJobs,
    ReadLedgers, ReadLetters, ReadQueues, ReadSchedules, ReadTokens, Replies, StoreFuture, Watch,
    Write,
    read::{
        AttemptsPage, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter, Ledger,
        LetterFilter, LetterGroups, ListeningWorker, OldestReady, Output, Page, PageFrom, Progress,
        Pruned, Scope, SessionView, StoredFollowUp, Verified,
    },
    sqlite::Sqlite,
};

use windlass_testkit::refusals::{RefusalNote, asks_for_an_end};

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
    /// The weather of each way.
    ways: Mutex<Vec<Weather>>,
    lost_answers: AtomicU64,
    /// Workers that are proven dead, for all lines.
    dead: Arc<Mutex<BTreeSet<WorkerId>>>,
    /// All that was refused, on all lines.
    refused: Arc<Mutex<Vec<RefusalNote>>>,
    /// So many of a hundred settles are refused by a lie.
    lies_percent: u64,
}

impl Line {
    pub(crate) fn new(
        store: Arc<Sqlite>,
        chance: Chance,
        dead: Arc<Mutex<BTreeSet<WorkerId>>>,
    ) -> Self {
        let (ways, lost_answers) = (Mutex::new(vec![Weather::Fine]), AtomicU64::new(0));
        let (refused, lies_percent) = (Arc::default(), 0);
        Self { store, chance, ways, lost_answers, dead, refused, lies_percent }
    }

    /// The same by so many ways.
    pub(crate) fn by_ways(self, count: usize) -> Self {
        Self { ways: Mutex::new(vec![Weather::Fine; count]), ..self }
    }

    /// The same, with what is refused noted there, and with so many lies of a hundred.
    pub(crate) fn noting(self, refused: Arc<Mutex<Vec<RefusalNote>>>, lies_percent: u64) -> Self {
        Self { refused, lies_percent, ..self }
    }

    /// The weather of all ways.
    pub(crate) fn set(&self, weather: Weather) {
        self.ways.lock().unwrap().fill(weather);
    }

    /// The weather changes on one of the ways.
    pub(crate) fn change(&self, weather: Weather) {
        let way = self.any_way();
        self.ways.lock().unwrap()[way] = weather;
    }

    pub(crate) fn lost_answers(&self) -> u64 {
        self.lost_answers.load(Ordering::SeqCst)
    }

    fn any_way(&self) -> usize {
        match self.ways.lock().unwrap().len() {
            1 => 0,
            count => self.chance.index(count),
        }
    }

    fn weather(&self, way: usize) -> Weather {
        self.ways.lock().unwrap()[way]
    }

    /// There and back by any way, if it can be reached.
    async fn over<T>(&self, call: StoreFuture<'_, T>) -> Result<T, Error> {
        self.over_way(self.any_way(), call).await
    }

    async fn over_way<T>(&self, way: usize, call: StoreFuture<'_, T>) -> Result<T, Error> {
        sleep(Duration::from_micros(self.chance.below(3_000))).await;
        if self.weather(way) == Weather::Cut {
            sleep(self.chance.ms(10, 2_000)).await;
            return Err(Error::Unavailable("the line is cut".into()));
        }
        let answer = call.await;
        sleep(Duration::from_micros(self.chance.below(1_000))).await;
        answer
    }

    /// Commits, and notes what was refused.
    async fn commit_and_note(&self, writes: Arc<Vec<Write>>) -> Result<Replies, Error> {
        let asks = |write: &Write| matches!(write, Write::Op { op, .. } if asks_for_an_end(op));
        let feed_begin = match writes.iter().any(asks) {
            true => self.store.feed_end().await?,
            false => 0,
        };
        let replies = match self.lies_percent {
            0 => self.store.commit(writes.clone()).await?,
            percent => self.lie(&writes, percent).await?,
        };
        if replies.iter().all(Result::is_ok) {
            return Ok(replies);
        }
        let feed = feed_begin..=self.store.feed_end().await?;
        for (write, reply) in writes.iter().zip(&replies) {
            if let (Write::Op { op, .. }, Err(refusal)) = (write, reply) {
                self.refused.lock().unwrap().extend(RefusalNote::of(op, refusal, feed.clone()));
            }
        }
        Ok(replies)
    }

    /// Commits like a node that goes by a row from before: some who settle are told that their lease is over, and the store
    /// hears nothing of it.
    async fn lie(&self, writes: &[Write], percent: u64) -> Result<Replies, Error> {
        let is_settle = |it: &Write| matches!(it, Write::Op { op: Op::Settle(_), .. });
        let lies: Vec<bool> =
            writes.iter().map(|it| is_settle(it) && self.chance.percent(percent)).collect();
        let honest = writes.iter().zip(&lies).filter(|(_, lie)| !**lie);
        let honest: Vec<Write> = honest.map(|(write, _)| write.clone()).collect();
        let mut replies = self.store.commit(honest.into()).await?.into_iter();
        let reply = |lie: bool| match lie {
            true => Err(Refusal::StaleAttempt),
            false => replies.next().unwrap(),
        };
        Ok(lies.into_iter().map(reply).collect())
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

impl Commit for Line {
    fn overlap(&self) -> Overlap {
        self.store.overlap()
    }

    fn claims_wait(&self) -> bool {
        self.store.claims_wait()
    }

    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(async move {
            let way = self.any_way();
            let replies = self.over_way(way, Box::pin(self.commit_and_note(writes))).await?;
            if self.weather(way) == Weather::LosesAnswers && self.chance.percent(30) {
                self.lost_answers.fetch_add(1, Ordering::SeqCst);
                sleep(self.chance.ms(10, 2_000)).await;
                return Err(Error::Ambiguous("the answer was lost".into()));
            }
            Ok(replies)
        })
    }

    over! {
        health() -> ();
    }
}

impl ReadJobs for Line {
    over! {
        job(scope: &Scope, id: JobId) -> Option<Job>;
        payload(scope: &Scope, id: JobId) -> Option<String>;
        last_output(scope: &Scope, id: JobId) -> Option<Output>;
        progress(scope: &Scope, id: JobId) -> Option<Progress>;
        events(scope: &Scope, id: JobId) -> Vec<Event>;
        verify(scope: &Scope, id: JobId) -> Option<Verified>;
        attempts(scope: &Scope, id: JobId, after: u32, limit: usize) -> AttemptsPage;
        jobs(filter: JobFilter, cursor: PageFrom) -> Page<Job>;
    }
}

impl ReadLetters for Line {
    over! {
        letter(scope: &Scope, id: DlqId) -> Option<DeadLetter>;
        approvals(scope: &Scope, id: DlqId) -> Vec<Approval>;
        letters(filter: LetterFilter, cursor: PageFrom) -> Page<DeadLetter>;
        letter_groups(scope: &Scope, state: LetterState) -> LetterGroups;
    }
}

impl ReadSchedules for Line {
    over! {
        schedule(tenant: &TenantId, name: &ScheduleName) -> Option<Schedule>;
        schedules(
            tenant: &TenantId, after: Option<&ScheduleName>, limit: usize
        ) -> Vec<Schedule>;
        schedule_history(
            tenant: &TenantId, name: &ScheduleName, before: u64, limit: usize
        ) -> Vec<FeedEvent>;
    }
}

impl ReadQueues for Line {
    fn ready(&self) -> Listener {
        self.store.ready()
    }

    over! {
        sessions() -> Vec<SessionView>;
        oldest_ready(scope: &Scope) -> Vec<OldestReady>;
        counts(scope: &Scope) -> Vec<(String, String, u64)>;
        rules() -> Vec<windlass_kernel::Rule>;
    }
}

impl ReadFeed for Line {
    over! {
        events_after(scope: &Scope, id: JobId, after: u64, limit: usize) -> Option<EventsPage>;
        feed(scope: &Scope, after: u64, rows: u32) -> Feed;
        feed_end() -> u64;
        notes(tenant: &TenantId, about: &About, before: u64, limit: usize) -> Vec<FeedEvent>;
        acts(scope: &Scope, before: u64, limit: usize) -> Vec<FeedEvent>;
        mark(name: &MarkName) -> Option<u64>;
    }
}

impl ReadLedgers for Line {
    over! {
        ledger(scope: &Scope, id: JobId, from: u32) -> Option<Ledger>;
    }
}

impl ReadTokens for Line {
    over! {
        token(id: TokenId) -> Option<Token>;
        tokens(scope: &Scope) -> Vec<Token>;
    }
}

impl Inspect for Line {
    over! {
        newest_of_task(scope: &Scope, task: &TaskId) -> Option<Job>;
        open_jobs() -> Vec<Job>;
        listening(scope: &Scope) -> Vec<ListeningWorker>;
        inbox_result(scope: &Scope, id: JobId) -> Option<InboxResult>;
        standing(scope: &Scope, id: JobId) -> Option<windlass_store::read::Standing>;
    }
}

impl Watch for Line {
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

    over! {
        due(max: usize) -> Due;
        follow_ups(max: usize) -> Vec<StoredFollowUp>;
        open_children(
            tenant: &TenantId, parent: JobId, after: Option<JobId>, max: usize
        ) -> Vec<JobId>;
        vouch(worker: &WorkerId) -> ();
        held_by(worker: &WorkerId, max: usize) -> Vec<(TenantId, JobId, u64)>;
    }
}

impl Keep for Line {
    over! {
        prune(retention: Retention, max: usize) -> Pruned;
        raise_incarnation() -> ();
    }
}
