//! A server as a client of it sees it: writes and reads as calls.
//!
//! It is a [`Client`](windlass_store::Client) and no [`Store`](windlass_store::Store): what time brings, follow-ups,
//! retention, the feed and proofs that workers are dead are the server's own, and cannot be asked for here.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use serde::de::DeserializeOwned;
use tokio::task::AbortHandle;
use windlass_kernel::{
    Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, Refusal, Rule, Schedule,
    ScheduleName, TenantId, Timestamp,
};
use windlass_store::{
    Bell, Commit, Error, Listener, Overlap, ReadJobs, ReadLetters, ReadQueues, ReadSchedules,
    Replies, StoreFuture, Write,
    read::{
        AttemptsPage, FeedEvent, JobFilter, LetterFilter, LetterGroups, OldestReady, Output, Page,
        PageFrom, Progress, Scope, SessionView, Verified,
    },
};

use super::{
    bell, commit,
    link::{Failed, Link, unfit},
};
use crate::{
    Why,
    clock::Clock,
    engine::StoreClock,
    wire::{
        AttemptDocument, EventDocument, FeedDocument, Found, Groups, JobDocument, LetterDocument,
        QueueDocument, RuleDocument, ScheduleDocument, WorkerDocument,
    },
};

/// A Windlass server, by its address.
pub struct Remote {
    link: Arc<Link>,
    /// Whose things the server lets us see; those of every tenant, if none is named.
    tenant: Option<TenantId>,
    ready: Bell,
    /// What rings it. It begins when somebody listens.
    follower: OnceLock<AbortHandle>,
}

impl Remote {
    /// Opens the server at this address, and asks it who it takes us for.
    pub(crate) async fn open(
        url: &str,
        token: Option<&str>,
        clock: Clock,
    ) -> Result<Result<Self, Error>, String> {
        let link = Arc::new(Link::new(url, token, clock)?);
        let (ready, follower) = (Bell::default(), OnceLock::new());
        let tenant = link.me().await;
        Ok(tenant.map(|tenant| Self { link, tenant, ready, follower }))
    }

    /// The tenant that the server takes us for; none, if it is every one.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        self.link.url()
    }

    pub(crate) fn store_clock(&self) -> Arc<StoreClock> {
        self.link.store_clock.clone()
    }

    /// Why a job is not running, as the server tells it.
    pub(crate) async fn why(&self, id: JobId) -> Result<Option<Why>, Error> {
        self.find(&["jobs", &id.to_string(), "why"]).await
    }

    /// May we see what is this scope's?
    fn admits(&self, scope: &Scope) -> bool {
        match (scope.tenant(), &self.tenant) {
            (Some(wanted), Some(own)) => wanted == own,
            _ => true,
        }
    }

    /// What is at this path, if it is there.
    async fn find<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Option<T>, Error> {
        match self.link.get(path, &[]).await {
            Ok(found) => Ok(Some(found)),
            Err(Failed::Problem(problem)) if problem.is_not_found() => Ok(None),
            Err(failed) => Err(failed.into_error()),
        }
    }

    async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Found<T>, Error> {
        self.link.get(path, query).await.map_err(Failed::into_error)
    }

    /// A whole list, page by page.
    async fn all<T: DeserializeOwned>(&self, path: &[&str]) -> Result<Vec<T>, Error> {
        let (mut items, mut query) = (Vec::new(), Vec::new());
        loop {
            let page: Found<T> = self.list(path, &query).await?;
            items.extend(page.items);
            let Some(next) = page.next else { return Ok(items) };
            query = vec![("cursor", next)];
        }
    }

    async fn groups(&self, query: &[(&str, String)]) -> Result<Groups, Error> {
        self.link.get(&["dlq", "groups"], query).await.map_err(Failed::into_error)
    }

    async fn document(&self, scope: &Scope, id: JobId) -> Result<Option<JobDocument>, Error> {
        if !self.admits(scope) {
            return Ok(None);
        }
        let found: Option<JobDocument> = self.find(&["jobs", &id.to_string()]).await?;
        Ok(found.filter(|job| admits(scope, &job.tenant)))
    }

    async fn letter_document(
        &self,
        scope: &Scope,
        id: DlqId,
    ) -> Result<Option<LetterDocument>, Error> {
        if !self.admits(scope) {
            return Ok(None);
        }
        let found: Option<LetterDocument> = self.find(&["dlq", &id.to_string()]).await?;
        Ok(found.filter(|letter| admits(scope, &letter.tenant)))
    }

    async fn history(&self, id: JobId) -> Result<Vec<Event>, Error> {
        let (mut events, mut after) = (Vec::<Event>::new(), 0);
        loop {
            let query = [("after", u64::to_string(&after)), ("limit", "1000".to_owned())];
            let path = ["jobs", &id.to_string(), "events"];
            let page: Found<EventDocument> = self.list(&path, &query).await?;
            for document in page.items {
                after = document.number;
                let started = events.last().is_some_and(Event::started_after);
                events.push(fit(document.into_event(started))?);
            }
            if page.next.is_none() {
                return Ok(events);
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(follower) = self.follower.get() {
            follower.abort();
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Remote");
        shown.field("url", &self.url()).field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

/// Is a document of this tenant one that the scope may see?
fn admits(scope: &Scope, tenant: &str) -> bool {
    scope.tenant().is_none_or(|wanted| wanted.as_str() == tenant)
}

fn fit<T>(found: Result<T, Refusal>) -> Result<T, Error> {
    found.map_err(|why| unfit(&why))
}

fn page_of<T, U>(list: Found<T>, item: impl Fn(T) -> Result<U, Refusal>) -> Result<Page<U>, Error> {
    let items = fit(list.items.into_iter().map(item).collect())?;
    let next = list.next.map(|next| next.parse()).transpose().map_err(|why| unfit(&why))?;
    Ok(Page { items, next, stopped: list.incomplete == Some(true), visited: 0 })
}

/// What says which part of a list is wanted.
fn paged(cursor: PageFrom) -> Vec<(&'static str, String)> {
    let limit = cursor.limit.clamp(1, PageFrom::LIMIT_MAX).to_string();
    let from = cursor.from.map(|from| ("cursor", from.to_string()));
    [Some(("limit", limit)), from].into_iter().flatten().collect()
}

/// What a filter asks for, but for states, as parameters.
fn asked(filter: &JobFilter) -> impl Iterator<Item = (&'static str, String)> + use<> {
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let said = [
        ("queue", filter.queue.as_ref().map(ToString::to_string)),
        ("kind", filter.kind.as_ref().map(ToString::to_string)),
        ("tag", filter.tag.as_ref().map(ToString::to_string)),
        ("code", filter.code.clone()),
        ("limit_key", filter.limit_key.as_ref().map(ToString::to_string)),
        ("created_from", time(filter.created_from)),
        ("created_before", time(filter.created_before)),
        ("failed_from", time(filter.failed_from)),
        ("failed_before", time(filter.failed_before)),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

impl Commit for Remote {
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies> {
        Box::pin(async move { commit::commit(&self.link, self.tenant.as_ref(), &writes).await })
    }

    fn overlap(&self) -> Overlap {
        // Calls wait for the line more than for each other.
        Overlap { commits_max: 16, writes_min: 1 }
    }

    fn claims_wait(&self) -> bool {
        false
    }

    fn health(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            let asked: Result<serde_json::Value, Failed> = self.link.get(&["readyz"], &[]).await;
            asked.map(drop).map_err(Failed::into_error)
        })
    }
}

impl ReadJobs for Remote {
    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>> {
        let scope = scope.clone();
        Box::pin(async move {
            let found = self.document(&scope, id).await?;
            fit(found.map(JobDocument::into_job).transpose())
        })
    }

    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>> {
        let scope = scope.clone();
        Box::pin(async move { Ok(self.document(&scope, id).await?.map(|job| job.payload())) })
    }

    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>> {
        let scope = scope.clone();
        Box::pin(async move { Ok(self.document(&scope, id).await?.and_then(|job| job.output())) })
    }

    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>> {
        let scope = scope.clone();
        Box::pin(async move { Ok(self.document(&scope, id).await?.and_then(|job| job.progress())) })
    }

    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>> {
        let scope = scope.clone();
        Box::pin(async move {
            match self.document(&scope, id).await? {
                Some(_) => self.history(id).await,
                None => Ok(Vec::new()),
            }
        })
    }

    fn verify(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Verified>> {
        let scope = scope.clone();
        Box::pin(async move {
            match self.document(&scope, id).await? {
                Some(_) => self.find(&["jobs", &id.to_string(), "verify"]).await,
                None => Ok(None),
            }
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
        Box::pin(async move {
            let Some(job) = self.job(&scope, id).await? else {
                return Ok(AttemptsPage { items: Vec::new(), more: false });
            };
            let path = ["jobs", &id.to_string(), "attempts"];
            let query = [("cursor", after.to_string()), ("limit", limit.min(1_000).to_string())];
            let page: Found<AttemptDocument> = self.list(&path, &query).await?;
            let items = page.items.into_iter().map(|attempt| attempt.into_attempt(&job)).collect();
            Ok(AttemptsPage { items, more: page.next.is_some() })
        })
    }

    fn jobs(&self, filter: JobFilter, cursor: PageFrom) -> StoreFuture<'_, Page<Job>> {
        Box::pin(async move {
            if !self.admits(&filter.scope) {
                return Ok(Page::empty());
            }
            let mut query = paged(cursor);
            let states: Vec<&str> = filter.states.iter().map(|state| state.as_str()).collect();
            query.extend((!states.is_empty()).then(|| ("state", states.join(","))));
            query.extend(asked(&filter));
            let mut list: Found<JobDocument> = self.list(&["jobs"], &query).await?;
            list.items.retain(|job| admits(&filter.scope, &job.tenant));
            page_of(list, JobDocument::into_job)
        })
    }
}

impl ReadLetters for Remote {
    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>> {
        let scope = scope.clone();
        Box::pin(async move {
            let found = self.letter_document(&scope, id).await?;
            fit(found.map(LetterDocument::into_letter).transpose())
        })
    }

    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>> {
        let scope = scope.clone();
        Box::pin(async move {
            let found = self.letter_document(&scope, id).await?;
            Ok(fit(found.map(LetterDocument::into_approvals).transpose())?.unwrap_or_default())
        })
    }

    fn letters(&self, filter: LetterFilter, cursor: PageFrom) -> StoreFuture<'_, Page<DeadLetter>> {
        Box::pin(async move {
            if !self.admits(&filter.scope) {
                return Ok(Page::empty());
            }
            let mut query = paged(cursor);
            query.extend(asked(&filter.jobs));
            query.extend(filter.state.map(|state| ("state", state.to_string())));
            let mut list: Found<LetterDocument> = self.list(&["dlq"], &query).await?;
            list.items.retain(|letter| admits(&filter.scope, &letter.tenant));
            page_of(list, LetterDocument::into_letter)
        })
    }

    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups> {
        let is_seen = self.admits(scope);
        Box::pin(async move {
            if !is_seen {
                return Ok(LetterGroups { groups: Vec::new(), letters: 0, more: false });
            }
            let query = [("state", state.to_string())];
            let found: Groups = self.groups(&query).await?;
            Ok(found.into())
        })
    }
}

impl ReadSchedules for Remote {
    fn schedule(
        &self,
        _tenant: &TenantId,
        name: &ScheduleName,
    ) -> StoreFuture<'_, Option<Schedule>> {
        let name = name.clone();
        Box::pin(async move {
            let found: Option<ScheduleDocument> = self.find(&["schedules", name.as_str()]).await?;
            fit(found.map(|document| document.into_schedule(None)).transpose())
        })
    }

    fn schedules(
        &self,
        _tenant: &TenantId,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Schedule>> {
        let after = after.map(|after| ("cursor", after.to_string()));
        Box::pin(async move {
            let limit = ("limit", limit.clamp(1, PageFrom::LIMIT_MAX).to_string());
            let query: Vec<_> = [Some(limit), after].into_iter().flatten().collect();
            let list: Found<ScheduleDocument> = self.list(&["schedules"], &query).await?;
            fit(list.items.into_iter().map(|document| document.into_schedule(None)).collect())
        })
    }

    fn schedule_history(
        &self,
        _tenant: &TenantId,
        name: &ScheduleName,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>> {
        let name = name.clone();
        Box::pin(async move {
            let limit = limit.clamp(1, PageFrom::LIMIT_MAX).to_string();
            let query = [("cursor", before.to_string()), ("limit", limit)];
            let path = ["schedules", name.as_str(), "history"];
            let list: Found<FeedDocument> = self.list(&path, &query).await?;
            fit(list.items.into_iter().map(FeedEvent::try_from).collect())
        })
    }
}

impl ReadQueues for Remote {
    fn ready(&self) -> Listener {
        let listener = self.ready.listen();
        self.follower.get_or_init(|| {
            let following = bell::follow(self.link.clone(), self.ready.clone());
            tokio::spawn(following).abort_handle()
        });
        listener
    }

    fn counts(&self, _scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>> {
        Box::pin(async {
            let queues: Vec<QueueDocument> = self.all(&["queues"]).await?;
            let of_queue = |queue: QueueDocument| {
                let name = queue.queue;
                queue.counts.into_iter().map(move |(state, count)| (name.clone(), state, count))
            };
            Ok(queues.into_iter().flat_map(of_queue).collect())
        })
    }

    fn oldest_ready(&self, _scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>> {
        Box::pin(async {
            // The list of queues does not say whose they are.
            let Some(tenant) = &self.tenant else {
                let why = "whose jobs wait longest is told to a token of one tenant";
                return Err(Error::Denied(why.to_owned()));
            };
            let queues: Vec<QueueDocument> = self.all(&["queues"]).await?;
            let oldest = queues.into_iter().filter_map(|queue| {
                let (tenant, since) = (tenant.clone(), queue.oldest_ready_at?);
                let oldest = |queue| OldestReady { tenant, queue, since };
                Some(queue.queue.try_into().map(oldest))
            });
            fit(oldest.collect())
        })
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>> {
        Box::pin(async {
            let (mut items, mut next) = (Vec::new(), None);
            loop {
                // A server of before has one page, and no parameter.
                let query: Vec<_> = next.take().map(|next| ("cursor", next)).into_iter().collect();
                let list: Found<WorkerDocument> = self.list(&["workers"], &query).await?;
                items.extend(list.items);
                match list.next {
                    Some(after) => next = Some(after),
                    None => break,
                }
            }
            fit(items.into_iter().filter_map(WorkerDocument::into_view).collect())
        })
    }

    fn rules(&self) -> StoreFuture<'_, Vec<Rule>> {
        Box::pin(async {
            let list: Found<RuleDocument> = self.list(&["rules"], &[]).await?;
            fit(list.items.into_iter().map(Rule::try_from).collect())
        })
    }
}
