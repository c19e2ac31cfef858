//! What can be asked of a PostgreSQL store: each part of the port, by way of the modules that do it.

use std::sync::{Arc, atomic::Ordering};

use deadpool_postgres::ClientWrapper;
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention, Rule,
    Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};

use super::{
    Postgres,
    link::open,
    read::{causes, feed, history, job, list, queue, standing, traces, verify},
    row::{
        act, follow_up, follower, inbox, ledger, letter, note, output, progress, rule, schedule,
        session, token,
    },
};
use crate::{
    ClockStanding, Commit, Inspect, Keep, Listener, Overlap, ReadFeed, ReadJobs, ReadLedgers,
    ReadLetters, ReadQueues, ReadSchedules, ReadTokens, Replies, StoreFuture, Watch, Write,
    read::{
        AttemptsPage, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter, Ledger,
        LetterFilter, LetterGroups, ListeningWorker, OldestReady, Output, Page, PageFrom, Progress,
        Pruned, Scope, SessionView, Standing, StoredFollowUp, Traces, Verified,
    },
};

impl Commit for Postgres {
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        self.ask(|inner| async move {
            let commit = inner.commit(&writes);
            #[cfg(feature = "faults")]
            let commit = crate::crash::counting(commit);
            commit.await
        })
    }

    /// The server works on one commit while another waits for the disk or the network.
    fn overlap(&self) -> Overlap {
        Overlap { commits_max: 2, writes_min: 16 }
    }

    /// A claim under a shared rule holds the rule's lock until its commit has ended, so two such
    /// claims in flight would only wait for each other.
    fn claims_wait(&self) -> bool {
        self.inner.rules.claims_wait()
    }

    fn health(&self) -> StoreFuture<'_, ()> {
        let look = async |client: &ClientWrapper| open::look(client).await;
        self.ask(|inner| async move { inner.with_client(look).await })
    }
}

impl ReadJobs for Postgres {
    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |client| {
                    Ok(job::read_job(client, &scope, id).await?.map(|loaded| loaded.job))
                })
                .await
        })
    }

    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Option::is_none, async move |it| {
                    job::read_payload(it, &scope, id).await
                })
                .await
        })
    }

    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| output::read_last_output(it, &scope, id).await).await
        })
    }

    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| progress::read_progress(it, &scope, id).await).await
        })
    }

    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .read_of(id, Vec::is_empty, async move |it| {
                    history::read_events(it, &scope, id).await
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
                    async move |it| history::read_attempts(it, &scope, id, (after, limit)).await,
                )
                .await
        })
    }

    fn jobs(&self, filter: JobFilter, cursor: PageFrom) -> StoreFuture<'_, Page<Job>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| list::read_jobs(it, &filter, cursor).await).await
        })
    }
}

impl ReadLedgers for Postgres {
    fn ledger(&self, scope: &Scope, id: JobId, from: u32) -> StoreFuture<'_, Option<Ledger>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| ledger::read_ledger(it, &scope, id, from).await).await
        })
    }
}

impl ReadLetters for Postgres {
    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| letter::read_letter(it, &scope, id).await).await
        })
    }

    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| letter::read_approvals(it, &scope, id).await).await
        })
    }

    fn letters(&self, filter: LetterFilter, cursor: PageFrom) -> StoreFuture<'_, Page<DeadLetter>> {
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
}

impl ReadSchedules for Postgres {
    fn schedule(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> StoreFuture<'_, Option<Schedule>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        self.ask(move |inner| async move {
            let read = async |client: &ClientWrapper| {
                schedule::read_schedule(client, &tenant, &name).await
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
                schedule::read_schedules(client, &tenant, after.as_ref(), limit).await
            };
            inner.with_client(read).await
        })
    }

    fn schedule_history(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>> {
        self.notes(tenant, &About::Schedule(name.clone()), before, limit)
    }
}

impl ReadQueues for Postgres {
    fn ready(&self) -> Listener {
        self.inner.wake.listen()
    }

    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |client| queue::read_counts(client, &scope).await).await
        })
    }

    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner
                .with_client(async move |client| queue::read_oldest_ready(client, &scope).await)
                .await
        })
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |client| session::read_sessions(client).await).await
        })
    }

    fn rules(&self) -> StoreFuture<'_, Vec<Rule>> {
        let read = async |client: &ClientWrapper| rule::load_edition(client).await;
        self.ask(|inner| async move { Ok(inner.with_client(read).await?.rules.to_vec()) })
    }
}

impl ReadFeed for Postgres {
    fn feed(&self, scope: &Scope, after: u64, rows: u32) -> StoreFuture<'_, Feed> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| feed::read_feed(it, &scope, after, rows).await).await
        })
    }

    fn feed_end(&self) -> StoreFuture<'_, u64> {
        self.ask(move |inner| async move {
            inner.with_client(async move |client| feed::read_feed_end(client).await).await
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
                    history::read_events_after(it, &scope, id, after, limit).await
                })
                .await
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
                note::read_notes(client, &tenant, &about, before, limit).await
            };
            inner.with_client(read).await
        })
    }

    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            let read = async |it: &ClientWrapper| act::read_acts(it, &scope, before, limit).await;
            inner.with_client(read).await
        })
    }

    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>> {
        let name = name.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| follower::read_mark(it, &name).await).await
        })
    }
}

impl ReadTokens for Postgres {
    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| token::read_token(it, id).await).await
        })
    }

    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            inner.with_client(async move |it| token::read_tokens(it, &scope).await).await
        })
    }
}

impl Inspect for Postgres {
    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>> {
        let (scope, task) = (scope.clone(), task.clone());
        self.ask(move |inner| async move {
            let read =
                async move |it: &ClientWrapper| job::read_newest_of_task(it, &scope, &task).await;
            inner.with_client(read).await
        })
    }

    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |client| job::read_open_jobs(client).await).await
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

    fn standing(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Standing>> {
        let scope = scope.clone();
        self.ask(move |inner| async move {
            let (time, presence_class) = (inner.time.clone(), inner.presence_class());
            let look = standing::Look { scope, id, time, presence_class };
            inner.read_of(id, Option::is_none, async move |it| look.read(it).await).await
        })
    }
}

impl Watch for Postgres {
    fn sooner(&self) -> Listener {
        self.inner.sooner.listen()
    }

    fn due(&self, max: usize) -> StoreFuture<'_, Due> {
        self.ask(move |inner| async move { inner.due(max).await })
    }

    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>> {
        self.ask(move |inner| async move {
            inner.with_client(async move |it| follow_up::read_follow_ups(it, max).await).await
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
                job::read_open_children(it, &tenant, parent, after, max).await
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

    fn clock(&self) -> ClockStanding {
        self.inner.time.standing()
    }
}

impl Keep for Postgres {
    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned> {
        self.ask(move |inner| async move { inner.prune(&retention, max).await })
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
}
