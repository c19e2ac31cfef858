//! A store behind which there are several nodes, as behind a load balancer: each call reaches another one.
//!
//! So a job is claimed by way of one node and settled by way of the next, and no node sees all calls of one job. What it tells
//! about leases and tasks is noted outside, and held against the history when all is over.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use windlass::HandlerResult;
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention, Rule,
    Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};
use windlass_store::{
    Bell, ClockStanding, Commit, Error, Inspect, Keep, Listener, Overlap, ReadFeed, ReadJobs,
    ReadLedgers, ReadLetters, ReadQueues, ReadSchedules, ReadTokens, Replies, StoreFuture, Watch,
    Write,
    postgres::{Options, Postgres},
    read::{
        AttemptsPage, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter, Ledger,
        LetterFilter, LetterGroups, ListeningWorker, OldestReady, Output, Page, PageFrom, Progress,
        Pruned, Scope, SessionView, Standing, StoredFollowUp, Verified,
    },
};
use windlass_testkit::refusals::{RefusalNote, asks_for_an_end};

use crate::outside::Outside;

/// Several nodes of one store on PostgreSQL, each with connections and a memory of its own.
pub(crate) struct Balancer {
    nodes: Vec<Arc<Postgres>>,
    calls: AtomicUsize,
    /// Rings when one of them would: a commit tells its own node alone.
    sooner: Bell,
    outside: Outside,
}

impl Balancer {
    /// So many nodes of the store at this address.
    pub(crate) async fn open(url: &str, count: usize, outside: Outside) -> HandlerResult<Self> {
        let options = Options { connections: 4, ..Options::parse(url)? };
        let (mut nodes, bell) = (Vec::new(), Bell::default());
        for _ in 0..count {
            let node = Postgres::open(options.clone()).await?;
            let (mut sooner, bell) = (node.sooner(), bell.clone());
            tokio::spawn(async move {
                loop {
                    sooner.rung().await;
                    bell.ring();
                }
            });
            nodes.push(Arc::new(node));
        }
        Ok(Self { nodes, calls: AtomicUsize::new(0), sooner: bell, outside })
    }

    fn next(&self) -> &Postgres {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        // Not one after the other without exception: then the calls of a job would meet the same pair of nodes in the same
        // order again and again.
        &self.nodes[(call + call / 3) % self.nodes.len()]
    }

    /// The one that stands for this process wherever it matters who asks.
    fn first(&self) -> &Postgres {
        &self.nodes[0]
    }

    async fn commit_and_note(&self, writes: Arc<Vec<Write>>) -> Result<Replies, Error> {
        let asks = |write: &Write| matches!(write, Write::Op { op, .. } if asks_for_an_end(op));
        let feed_begin = match writes.iter().any(asks) {
            true => self.next().feed_end().await.unwrap_or(0),
            false => 0,
        };
        let replies = self.next().commit(writes.clone()).await?;
        let feed_end = match replies.iter().any(Result::is_err) {
            true => self.next().feed_end().await.unwrap_or(u64::MAX),
            false => u64::MAX,
        };
        for (write, reply) in writes.iter().zip(&replies) {
            if let (Write::Op { op, .. }, Err(refusal)) = (write, reply)
                && let Some(refused) = RefusalNote::of(op, refusal, feed_begin..=feed_end)
            {
                self.outside.note_refused(&refused);
            }
        }
        Ok(replies)
    }
}

/// What any node can be asked.
macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> StoreFuture<'_, $answer> {
            self.next().$name($($arg),*)
        })*
    };
}

/// What has to be asked of one and the same node.
macro_rules! first {
    ($($name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $answer {
            self.first().$name($($arg),*)
        })*
    };
}

impl Commit for Balancer {
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(self.commit_and_note(writes))
    }

    next! {
        health() -> ();
    }

    first! {
        overlap() -> Overlap;
        claims_wait() -> bool;
    }
}

impl ReadJobs for Balancer {
    next! {
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

impl ReadLetters for Balancer {
    next! {
        letter(scope: &Scope, id: DlqId) -> Option<DeadLetter>;
        approvals(scope: &Scope, id: DlqId) -> Vec<Approval>;
        letters(filter: LetterFilter, cursor: PageFrom) -> Page<DeadLetter>;
        letter_groups(scope: &Scope, state: LetterState) -> LetterGroups;
    }
}

impl ReadSchedules for Balancer {
    next! {
        schedule(tenant: &TenantId, name: &ScheduleName) -> Option<Schedule>;
        schedules(
            tenant: &TenantId, after: Option<&ScheduleName>, limit: usize
        ) -> Vec<Schedule>;
        schedule_history(
            tenant: &TenantId, name: &ScheduleName, before: u64, limit: usize
        ) -> Vec<FeedEvent>;
    }
}

impl ReadQueues for Balancer {
    next! {
        sessions() -> Vec<SessionView>;
        oldest_ready(scope: &Scope) -> Vec<OldestReady>;
        counts(scope: &Scope) -> Vec<(String, String, u64)>;
        rules() -> Vec<Rule>;
    }

    first! {
        ready() -> Listener;
    }
}

impl ReadFeed for Balancer {
    next! {
        events_after(scope: &Scope, id: JobId, after: u64, limit: usize) -> Option<EventsPage>;
        feed(scope: &Scope, after: u64, rows: u32) -> Feed;
        feed_end() -> u64;
        notes(tenant: &TenantId, about: &About, before: u64, limit: usize) -> Vec<FeedEvent>;
        acts(scope: &Scope, before: u64, limit: usize) -> Vec<FeedEvent>;
        mark(name: &MarkName) -> Option<u64>;
    }
}

impl ReadLedgers for Balancer {
    next! {
        ledger(scope: &Scope, id: JobId, from: u32) -> Option<Ledger>;
    }
}

impl ReadTokens for Balancer {
    next! {
        token(id: TokenId) -> Option<Token>;
        tokens(scope: &Scope) -> Vec<Token>;
    }
}

impl Inspect for Balancer {
    next! {
        newest_of_task(scope: &Scope, task: &TaskId) -> Option<Job>;
        open_jobs() -> Vec<Job>;
        listening(scope: &Scope) -> Vec<ListeningWorker>;
        inbox_result(scope: &Scope, id: JobId) -> Option<InboxResult>;
        standing(scope: &Scope, id: JobId) -> Option<Standing>;
    }
}

impl Watch for Balancer {
    fn sooner(&self) -> Listener {
        self.sooner.listen()
    }

    next! {
        due(max: usize) -> Due;
        follow_ups(max: usize) -> Vec<StoredFollowUp>;
        open_children(
            tenant: &TenantId, parent: JobId, after: Option<JobId>, max: usize
        ) -> Vec<JobId>;
        held_by(worker: &WorkerId, max: usize) -> Vec<(TenantId, JobId, u64)>;
    }

    first! {
        clock() -> ClockStanding;
        vouch(worker: &WorkerId) -> StoreFuture<'_, ()>;
        stop_vouching(worker: &WorkerId) -> StoreFuture<'_, ()>;
        dead_workers() -> StoreFuture<'_, Vec<WorkerId>>;
    }
}

impl Keep for Balancer {
    next! {
        prune(retention: Retention, max: usize) -> Pruned;
        raise_incarnation() -> ();
    }
}
