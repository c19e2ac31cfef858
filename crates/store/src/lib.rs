//! Durable state: one way to write, and reads by noun.
//!
//! [`Store::commit`] takes a batch of writes and puts all of it into one transaction: it loads the rows
//! they name, asks the kernel about each, and saves what the kernel says, rows and events together. A
//! refused write changes nothing and does not fail its neighbours. Nothing is answered before it is
//! durable.
//!
//! A backend only loads, saves, reads and wakes. What a commit does with the rows is in [`commit`], once.

mod address;
mod bell;
pub mod check;
pub mod commit;
#[cfg(feature = "faults")]
pub mod crash;
mod due;
mod error;
mod history_page;
mod id_map;
mod inbox;
mod job_row;
mod log;
mod migrate;
mod news;
mod notes;
mod packed;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod read;
mod row;
mod rules;
mod schedule_row;
mod search;
pub mod sqlite;
mod standing;
mod steady;
mod survey;
mod token_row;

use std::{future::Future, pin::Pin, sync::Arc};

pub use address::without_password;
pub use bell::{Bell, Listener};
pub use commit::{ClaimMany, Granted, Reply, Scheduled, Write};
pub use error::{Error, Owner};
pub use id_map::{IdMap, IdSet};
pub use log::spec_digest;
use read::{
    AttemptsPage, Cursor, Due, EventsPage, Feed, FeedEvent, InboxResult, JobFilter, LetterFilter,
    LetterGroups, ListeningWorker, OldestReady, Output, Page, Progress, Pruned, Scope, SessionView,
    Standing, StoredFollowUp, Traces, Verified,
};
pub use rules::RuleChange;
pub use rusqlite;
pub use steady::{ClockStanding, JUMP_MAX, Ticks, uptime};
pub use survey::{Step, Survey};
use windlass_kernel::{
    About, Approval, DeadLetter, DlqId, Event, Job, JobId, LetterState, MarkName, Retention, Rule,
    Schedule, ScheduleName, TaskId, TenantId, Token, TokenId, WorkerId,
};

/// A future that a store gives back.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What each write of a batch is told, in the order asked.
pub type Replies = Vec<Result<Reply, windlass_kernel::Refusal>>;

/// How many commits a store can use at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// How many at the most.
    pub commits_max: usize,
    /// How many writes a commit should have to set out while another is on its way. A smaller one takes the
    /// disk as long: it had better grow until the way is free.
    pub writes_min: u32,
}

impl Overlap {
    /// One after the other.
    pub const NONE: Self = Self { commits_max: 1, writes_min: 1 };
}

/// A place where jobs are kept.
pub trait Store: Send + Sync {
    /// How many commits it can use at the same time. More are in order, and gain nothing.
    fn overlap(&self) -> Overlap;

    /// Would claims that are on their way at once only wait for each other? Then the time of the second is better used
    /// for other writes. It may say something else after each commit.
    fn claims_wait(&self) -> bool;

    /// Writes a batch in one transaction. When it answers, the answers are durable.
    ///
    /// What users have put into the inbox comes first, also with a batch that is empty.
    fn commit(&self, writes: Arc<Vec<Write>>) -> StoreFuture<'_, Replies>;

    /// A job as it stands.
    ///
    /// Every read that is told a [`Scope`] finds only what that may see: another's job is not there.
    fn job(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Job>>;

    /// The job of a task with the highest attempt. If several tenants have a task of this name, it is one of theirs.
    fn newest_of_task(&self, scope: &Scope, task: &TaskId) -> StoreFuture<'_, Option<Job>>;

    /// The payload of a job, byte for byte.
    fn payload(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<String>>;

    /// What the handler of the last attempt gave back that gave back anything.
    fn last_output(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Output>>;

    /// How far the handler of a job said it had come, if it did: the last report that counted.
    fn progress(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Progress>>;

    /// The history of a job, in order.
    fn events(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Vec<Event>>;

    /// A part of that: at most so many events after the one of this number. None, if there is no such job. However long the
    /// history is, little more than the part is read.
    fn events_after(
        &self,
        scope: &Scope,
        id: JobId,
        after: u64,
        limit: usize,
    ) -> StoreFuture<'_, Option<EventsPage>>;

    /// The traces of these jobs, as far as they are there. An event that brought no trace shows that of its job.
    fn traces(&self, scope: &Scope, ids: Vec<JobId>) -> StoreFuture<'_, Traces> {
        let scope = scope.clone();
        Box::pin(async move {
            let mut traces = Traces::new();
            for id in ids {
                let job = self.job(&scope, id).await?;
                traces.extend(job.map(|job| (id, job.spec.trace_id.clone())));
            }
            Ok(traces)
        })
    }

    /// Makes the chain of hashes of a job's history anew and says whether it is the one that was kept.
    fn verify(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Verified>>;

    /// The attempts of a job after this one, in order: at most so many, and no more than a part of them holds.
    fn attempts(
        &self,
        scope: &Scope,
        id: JobId,
        after: u32,
        limit: usize,
    ) -> StoreFuture<'_, AttemptsPage>;

    /// A dead letter as it stands.
    fn letter(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Option<DeadLetter>>;

    /// What people said about a dead letter, in order.
    fn approvals(&self, scope: &Scope, id: DlqId) -> StoreFuture<'_, Vec<Approval>>;

    /// All jobs that are not at an end.
    fn open_jobs(&self) -> StoreFuture<'_, Vec<Job>>;

    /// Jobs by filter, newest first, page by page.
    fn jobs(&self, filter: JobFilter, cursor: Cursor) -> StoreFuture<'_, Page<Job>>;

    /// Dead letters by filter, newest first, page by page.
    fn letters(&self, filter: LetterFilter, cursor: Cursor) -> StoreFuture<'_, Page<DeadLetter>>;

    /// Dead letters in a state, by the code and the message of their failure, with exact counts.
    fn letter_groups(&self, scope: &Scope, state: LetterState) -> StoreFuture<'_, LetterGroups>;

    /// Every worker session.
    fn sessions(&self) -> StoreFuture<'_, Vec<SessionView>>;

    /// Workers that are there, and what they listen to, whether they hold anything or not.
    fn listening(&self, scope: &Scope) -> StoreFuture<'_, Vec<ListeningWorker>>;

    /// For each queue of each tenant the job that waits longest, by tenant and queue.
    fn oldest_ready(&self, scope: &Scope) -> StoreFuture<'_, Vec<OldestReady>>;

    /// Events after a number that the scope may see, in the order of the store, so many at the most, and
    /// [`Feed::BYTES_MAX`] bytes. It looks at as many rows of the log at the most and says how far it looked, which may be
    /// the middle of a commit. If some events are no longer kept it says so, and from where on all are: none is passed over in
    /// silence.
    fn feed(&self, scope: &Scope, after: u64, limit: u32) -> StoreFuture<'_, Feed>;

    /// The number of the newest event, for a follower that begins at the end; 0, if nothing has happened yet.
    fn feed_end(&self) -> StoreFuture<'_, u64>;

    /// What was noted about something that is not a job before an event, newest first, so many at the most.
    fn notes(
        &self,
        tenant: &TenantId,
        about: &About,
        before: u64,
        limit: usize,
    ) -> StoreFuture<'_, Vec<FeedEvent>>;

    /// What people did before an event, newest first, so many at the most and no more than [`Cursor::LIMIT_MAX`]: the
    /// events and notes of everything but enqueues.
    fn acts(&self, scope: &Scope, before: u64, limit: usize) -> StoreFuture<'_, Vec<FeedEvent>>;

    /// A token as it stands, whosever it is: it is asked for before anybody knows who asks.
    fn token(&self, id: TokenId) -> StoreFuture<'_, Option<Token>>;

    /// Tokens, newest first, [`TOKENS_MAX`](read::TOKENS_MAX) at the most. Those that open every tenant are seen by
    /// [`Scope::Every`] alone.
    fn tokens(&self, scope: &Scope) -> StoreFuture<'_, Vec<Token>>;

    /// How far a follower of the feed has come, if it ever said so by [`Write::Mark`].
    fn mark(&self, name: &MarkName) -> StoreFuture<'_, Option<u64>>;

    /// A schedule as it stands.
    fn schedule(&self, tenant: &TenantId, name: &ScheduleName)
    -> StoreFuture<'_, Option<Schedule>>;

    /// The schedules of a tenant by name, after this one, so many at the most.
    fn schedules(
        &self,
        tenant: &TenantId,
        after: Option<&ScheduleName>,
        limit: usize,
    ) -> StoreFuture<'_, Vec<Schedule>>;

    /// What became of an enqueue of a user's own transaction that made no job, by the id that was given.
    fn inbox_result(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<InboxResult>>;

    /// One step of retention: looks closely at so many jobs at the most and forgets those that may go, or
    /// takes their lines, and old results of the inbox, out of a bounded part of the log.
    /// Call it until there is no more, and again after a while.
    fn prune(&self, retention: Retention, max: usize) -> StoreFuture<'_, Pruned>;

    /// How many jobs there are, by queue and state.
    fn counts(&self, scope: &Scope) -> StoreFuture<'_, Vec<(String, String, u64)>>;

    /// Begins a new incarnation: epochs jump ahead of all that were handed out before.
    fn raise_incarnation(&self) -> StoreFuture<'_, ()>;

    /// Rings whenever jobs may have become ready: here, or on another node. A retry becomes ready because time
    /// passes, which nobody tells: [`Store::due`] says when.
    fn ready(&self) -> Listener;

    /// Rings whenever something has to be looked after earlier than the last [`Store::due`] said: an alarm or a
    /// retry was set, or something follows for another job. Other nodes tell those who wait there. Whoever listens
    /// before its first look, and looks each time it rings, misses nothing that is committed here.
    fn sooner(&self) -> Listener;

    /// What time has brought, in batches: jobs whose alarm rings and schedules whose slot has come, at most `max` of
    /// each, and when to look again. Of alarms
    /// of jobs and of leases that have run out, neither waits until there are no more of the other.
    fn due(&self, max: usize) -> StoreFuture<'_, Due>;

    /// What follows for other jobs and is not carried out yet, oldest first. [`Write::FollowUpDone`] says that it
    /// is.
    fn follow_ups(&self, max: usize) -> StoreFuture<'_, Vec<StoredFollowUp>>;

    /// Children of a job that are not at their end, at most `max`, after this one in the order in which they are given:
    /// whoever has seen it need not pass those before it again, at their end or not.
    fn open_children(
        &self,
        tenant: &TenantId,
        parent: JobId,
        after: Option<JobId>,
        max: usize,
    ) -> StoreFuture<'_, Vec<JobId>>;

    /// Says that this process runs the worker. If the process ends, it is known at once, or at the next start, that
    /// the worker has ended too, and nobody need wait until its leases run out. It fails while another process
    /// that lives has said the same.
    fn vouch(&self, worker: &WorkerId) -> StoreFuture<'_, ()>;

    /// The worker has ended well; or it is dead, and what it held is taken from it.
    fn stop_vouching(&self, worker: &WorkerId) -> StoreFuture<'_, ()>;

    /// Workers whose processes are proven dead. On PostgreSQL it takes two looks that lie two seconds apart.
    fn dead_workers(&self) -> StoreFuture<'_, Vec<WorkerId>>;

    /// What a worker holds, at most `max`: tenant, job and version, as an
    /// [`Expire`](windlass_kernel::ops::Expire) names it.
    fn held_by(
        &self,
        worker: &WorkerId,
        max: usize,
    ) -> StoreFuture<'_, Vec<(TenantId, JobId, u64)>>;

    /// Every rule, by name.
    fn rules(&self) -> StoreFuture<'_, Vec<Rule>>;

    /// Everything that says why a job is not running. It is the same look at the rules as a claim has. Of jobs that hold
    /// what it waits for, and of workers, it names those that the scope may see.
    fn standing(&self, scope: &Scope, id: JobId) -> StoreFuture<'_, Option<Standing>>;

    /// Is the store there, and can it be written to?
    fn health(&self) -> StoreFuture<'_, ()>;

    /// How the clock that it follows stands to its own time, which never goes back and never stands still.
    fn clock(&self) -> ClockStanding;
}
