//! What can be asked of a SQLite store: each part of the port, by way of the modules that do it.

use std::sync::Arc;

use rusqlite::Connection;
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention, Rule,
    Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};

use super::{
    Sqlite,
    claim::names::Stored,
    file::{place::Place, presence},
    read::{causes, feed, history, job, list, queue, standing, traces, verify},
    row::{
        act, follow_up, follower, inbox, ledger, letter, note, output, progress, rule, schedule,
        session, token,
    },
    write::writer::OVERLAP,
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

impl Commit for Sqlite {
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(self.writer.commit(writes))
    }

    /// One commit is decided while another is written. In memory there is no disk to wait for.
    fn overlap(&self) -> Overlap {
        match self.place {
            Place::File(_) => OVERLAP,
            Place::Memory(_) => Overlap::NONE,
        }
    }

    /// Claims need not wait for each other: the one writer decides each on top of the plans in
    /// flight.
    fn claims_wait(&self) -> bool {
        false
    }

    /// A health check is an empty commit: it goes through the writer and the saver, which looks
    /// whether the file is still the one that was opened. Nothing is written.
    fn health(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.writer.commit(Arc::default()).await.map(drop) })
    }
}

impl ReadJobs for Sqlite {
    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>> {
        let scope = scope.clone();
        Box::pin(self.read_of(id, Option::is_none, move |snapshot| {
            Ok(Ok(job::read_job(snapshot, &scope, id)?.map(|loaded| loaded.job)))
        }))
    }

    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>> {
        let scope = scope.clone();
        let read = move |snapshot: &Connection| Ok(Ok(job::read_payload(snapshot, &scope, id)?));
        Box::pin(self.read_of(id, Option::is_none, read))
    }

    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>> {
        let scope = scope.clone();
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(output::read_last_output(snapshot, &scope, id)?))),
        )
    }

    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>> {
        let scope = scope.clone();
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(progress::read_progress(snapshot, &scope, id)?))),
        )
    }

    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>> {
        let scope = scope.clone();
        Box::pin(self.read_of(id, Vec::is_empty, move |it| history::read_events(it, &scope, id)))
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
        let read = move |it: &Connection| history::read_attempts(it, &scope, id, (after, limit));
        Box::pin(self.read_of(id, |page: &AttemptsPage| page.items.is_empty(), read))
    }

    fn jobs(&self, filter: JobFilter, cursor: PageFrom) -> StoreFuture<'_, Page<Job>> {
        Box::pin(self.readers.read(move |it| Ok(Ok(list::read_jobs(it, &filter, cursor)?))))
    }
}

impl ReadLedgers for Sqlite {
    fn ledger(&self, scope: &Scope, id: JobId, from: u32) -> StoreFuture<'_, Option<Ledger>> {
        let scope = scope.clone();
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(ledger::read_ledger(snapshot, &scope, id, from)?))),
        )
    }
}

impl ReadLetters for Sqlite {
    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>> {
        let scope = scope.clone();
        Box::pin(
            self.readers.read(move |snapshot| Ok(Ok(letter::read_letter(snapshot, &scope, id)?))),
        )
    }

    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>> {
        let scope = scope.clone();
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(letter::read_approvals(snapshot, &scope, id)?))),
        )
    }

    fn letters(&self, filter: LetterFilter, cursor: PageFrom) -> StoreFuture<'_, Page<DeadLetter>> {
        Box::pin(self.readers.read(move |it| Ok(Ok(list::read_letters(it, &filter, cursor)?))))
    }

    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |it| Ok(Ok(causes::read_groups(it, &scope, state)?))))
    }
}

impl ReadSchedules for Sqlite {
    fn schedule(
        &self,
        tenant: &TenantId,
        name: &ScheduleName,
    ) -> StoreFuture<'_, Option<Schedule>> {
        let (tenant, name) = (tenant.clone(), name.clone());
        Box::pin(
            self.readers
                .read(move |snapshot| Ok(Ok(schedule::read_schedule(snapshot, &tenant, &name)?))),
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
            Ok(Ok(schedule::read_schedules(snapshot, &tenant, after.as_ref(), limit)?))
        }))
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

impl ReadQueues for Sqlite {
    fn ready(&self) -> Listener {
        self.bells.ready.listen()
    }

    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(queue::read_counts(snapshot, &scope)?))))
    }

    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>> {
        let scope = scope.clone();
        Box::pin(
            self.readers.read(move |snapshot| Ok(Ok(queue::read_oldest_ready(snapshot, &scope)?))),
        )
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>> {
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(session::read_sessions(snapshot)?))))
    }

    fn rules(&self) -> StoreFuture<'_, Vec<Rule>> {
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(rule::read_rules(snapshot)?))))
    }
}

impl ReadFeed for Sqlite {
    fn feed(&self, scope: &Scope, after: u64, rows: u32) -> StoreFuture<'_, Feed> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |snapshot| feed::read_feed(snapshot, &scope, after, rows)))
    }

    fn feed_end(&self) -> StoreFuture<'_, u64> {
        Box::pin(self.readers.read(|snapshot| Ok(Ok(feed::read_feed_end(snapshot)?))))
    }

    fn events_after(
        &self,
        scope: &Scope,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<EventsPage>> {
        let scope = scope.clone();
        let read = move |it: &Connection| history::read_events_after(it, &scope, id, after, limit);
        Box::pin(self.read_of(id, Option::is_none, read))
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
                .read(move |snapshot| note::read_notes(snapshot, &tenant, &about, before, limit)),
        )
    }

    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |it| act::read_acts(it, &scope, before, limit)))
    }

    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>> {
        let name = name.clone();
        Box::pin(self.readers.read(move |it| Ok(Ok(follower::read_mark(it, &name)?))))
    }
}

impl ReadTokens for Sqlite {
    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>> {
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(token::read_token(snapshot, id)?))))
    }

    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>> {
        let scope = scope.clone();
        Box::pin(self.readers.read(move |it| Ok(Ok(token::read_tokens(it, &scope)?))))
    }
}

impl Inspect for Sqlite {
    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>> {
        let (scope, task) = (scope.clone(), task.clone());
        let read = move |it: &Connection| job::read_newest_of_task(it, &scope, &task);
        Box::pin(self.readers.read(move |snapshot| Ok(Ok(read(snapshot)?))))
    }

    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>> {
        Box::pin(self.readers.read(move |snapshot| {
            let jobs = job::load_open_jobs(snapshot, &Stored(snapshot))?;
            Ok(Ok(jobs.into_iter().map(|loaded| loaded.job).collect()))
        }))
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

    fn inbox_result(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<InboxResult>> {
        let scope = scope.clone();
        let read = move |snapshot: &Connection| Ok(Ok(inbox::read_result(snapshot, &scope, id)?));
        Box::pin(self.read_of(id, Option::is_none, read))
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
}

impl Watch for Sqlite {
    fn sooner(&self) -> Listener {
        self.bells.sooner.listen()
    }

    fn due(&self, max: usize) -> StoreFuture<'_, Due> {
        Box::pin(self.look(max))
    }

    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>> {
        Box::pin(self.readers.read(move |it| Ok(Ok(follow_up::read_follow_ups(it, max)?))))
    }

    fn open_children(
        &self,
        tenant: &TenantId,
        parent: JobId,
        after: Option<JobId>,
        max: usize,
    ) -> StoreFuture<'_, Vec<JobId>> {
        let tenant = tenant.clone();
        let read = move |it: &Connection| job::read_open_children(it, &tenant, parent, after, max);
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

    fn clock(&self) -> ClockStanding {
        self.now.standing()
    }
}

impl Keep for Sqlite {
    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned> {
        Box::pin(self.writer.prune(retention, max))
    }

    fn raise_incarnation(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.writer.raise_incarnation())
    }
}
