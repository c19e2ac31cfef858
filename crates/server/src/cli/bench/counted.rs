//! A store that counts its transactions. The store itself need not: nothing is added to its hot path.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention,
    Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};
use windlass_store::{
    ClockStanding, Listener, Overlap, Replies, Store, StoreFuture, Write,
    read::{
        AttemptsPage, Cursor, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter,
        LetterFilter, LetterGroups, ListeningWorker, OldestReady, Output, Page, Progress, Pruned,
        Scope, SessionView, StoredFollowUp, Verified,
    },
};

/// How many transactions there were. Clones show the same number.
#[derive(Clone, Default)]
pub(super) struct Commits(Arc<AtomicU64>);

impl Commits {
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

pub(super) struct Counted {
    pub(super) store: Arc<dyn Store>,
    pub(super) commits: Commits,
}

impl Store for Counted {
    fn overlap(&self) -> Overlap {
        self.store.overlap()
    }

    fn claims_wait(&self) -> bool {
        self.store.claims_wait()
    }

    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(async move {
            let replies = self.store.commit(writes).await?;
            self.commits.0.fetch_add(1, Ordering::Relaxed);
            Ok(replies)
        })
    }

    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>> {
        self.store.job(scope, id)
    }

    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>> {
        self.store.newest_of_task(scope, task)
    }

    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>> {
        self.store.payload(scope, id)
    }

    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>> {
        self.store.last_output(scope, id)
    }

    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>> {
        self.store.progress(scope, id)
    }

    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>> {
        self.store.events(scope, id)
    }

    fn events_after(
        &self,
        scope: &Scope,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<EventsPage>> {
        self.store.events_after(scope, id, after, limit)
    }

    fn verify(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Verified>> {
        self.store.verify(scope, id)
    }

    fn attempts(
        &self,
        scope: &Scope,
        id: JobId,
        after: u32,
        limit: usize,
    ) -> StoreFuture<'_, AttemptsPage> {
        self.store.attempts(scope, id, after, limit)
    }

    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>> {
        self.store.letter(scope, id)
    }

    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>> {
        self.store.approvals(scope, id)
    }

    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>> {
        self.store.open_jobs()
    }

    fn jobs(&self, filter: JobFilter, cursor: Cursor) -> StoreFuture<'_, Page<Job>> {
        self.store.jobs(filter, cursor)
    }

    fn letters(&self, filter: LetterFilter, cursor: Cursor) -> StoreFuture<'_, Page<DeadLetter>> {
        self.store.letters(filter, cursor)
    }

    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups> {
        self.store.letter_groups(scope, state)
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>> {
        self.store.sessions()
    }

    fn listening(&self, scope: &Scope) -> StoreFuture<'_, Vec<ListeningWorker>> {
        self.store.listening(scope)
    }

    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>> {
        self.store.oldest_ready(scope)
    }

    fn feed(&self, scope: &Scope, after: u64, rows: u32) -> StoreFuture<'_, Feed> {
        self.store.feed(scope, after, rows)
    }

    fn feed_end(&self) -> StoreFuture<'_, u64> {
        self.store.feed_end()
    }

    fn notes(
        &self,
        tenant: &TenantId,
        about: &About,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>> {
        self.store.notes(tenant, about, before, limit)
    }

    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>> {
        self.store.acts(scope, before, limit)
    }

    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>> {
        self.store.token(id)
    }

    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>> {
        self.store.tokens(scope)
    }

    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>> {
        self.store.mark(name)
    }

    fn schedule(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> StoreFuture<'_, Option<Schedule>> {
        self.store.schedule(tenant, name)
    }

    fn schedules(
        &self,
        tenant: &TenantId,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Schedule>> {
        self.store.schedules(tenant, after, limit)
    }

    fn inbox_result(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<InboxResult>> {
        self.store.inbox_result(scope, id)
    }

    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned> {
        self.store.prune(retention, max)
    }

    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>> {
        self.store.counts(scope)
    }

    fn raise_incarnation(&self) -> StoreFuture<'_, ()> {
        self.store.raise_incarnation()
    }

    fn ready(&self) -> Listener {
        self.store.ready()
    }

    fn sooner(&self) -> Listener {
        self.store.sooner()
    }

    fn due(&self, max: usize) -> StoreFuture<'_, Due> {
        self.store.due(max)
    }

    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>> {
        self.store.follow_ups(max)
    }

    fn open_children(
        &self,
        tenant: &TenantId,
        parent: JobId,
        after: Option<JobId>,
        max: usize,
    ) -> StoreFuture<'_, Vec<JobId>> {
        self.store.open_children(tenant, parent, after, max)
    }

    fn rules(&self) -> StoreFuture<'_, Vec<windlass_kernel::Rule>> {
        self.store.rules()
    }

    fn standing(
        &self,
        scope: &Scope,
        id: JobId,
    ) -> StoreFuture<'_, Option<windlass_store::read::Standing>> {
        self.store.standing(scope, id)
    }

    fn vouch(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        self.store.vouch(worker)
    }

    fn stop_vouching(&self, worker: &WorkerId) -> StoreFuture<'_, ()> {
        self.store.stop_vouching(worker)
    }

    fn dead_workers(&self) -> StoreFuture<'_, Vec<WorkerId>> {
        self.store.dead_workers()
    }

    fn held_by(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> StoreFuture<'_, Vec<(TenantId, JobId, u64)>> {
        self.store.held_by(worker, max)
    }

    fn health(&self) -> StoreFuture<'_, ()> {
        self.store.health()
    }

    fn clock(&self) -> ClockStanding {
        self.store.clock()
    }
}
