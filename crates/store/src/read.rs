//! What a store tells when it is asked: values that reads give back.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
    str::FromStr,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use windlass_kernel::{
    Attempt, DeadLetter, Digest, DlqId, Epoch, Event, FollowUp, Job, JobId, Kind, LetterState,
    LimitKey, Payload, Queue, Rule, RuleName, ScheduleName, State, Tag, TenantId, Timestamp,
    TraceId, WorkerId,
    admit::Blocked,
    ledger::{Effect, Mail, Step},
    timer::Alarm,
};

use crate::log;

/// The traces of jobs.
pub type Traces = HashMap<JobId, TraceId>;

/// Whose things a read may see. What is another's is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of one tenant.
    Of(TenantId),
    /// Those of every tenant: for what serves all of them.
    Every,
}

impl Scope {
    /// May it see what is this tenant's?
    pub fn admits(&self, tenant: &TenantId) -> bool {
        self.tenant().is_none_or(|own| own == tenant)
    }

    /// The one tenant that it is for; none, if it is for all.
    pub fn tenant(&self) -> Option<&TenantId> {
        match self {
            Scope::Of(tenant) => Some(tenant),
            Scope::Every => None,
        }
    }

    /// The tenant as statements compare it: null admits all.
    pub(crate) fn word(&self) -> Option<&str> {
        self.tenant().map(TenantId::as_str)
    }
}

impl From<TenantId> for Scope {
    fn from(tenant: TenantId) -> Self {
        Scope::Of(tenant)
    }
}

/// Which jobs are asked for. Whatever is not named does not matter.
#[derive(Clone, Debug)]
pub struct JobFilter {
    /// Whose jobs.
    pub scope: Scope,
    /// In one of these states.
    pub states: Vec<State>,
    /// In this queue.
    pub queue: Option<Queue>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// With this tag.
    pub tag: Option<Tag>,
    /// Whose last failure has this code.
    pub code: Option<String>,
    /// With this limit key.
    pub limit_key: Option<LimitKey>,
    /// Created at this time or later.
    pub created_from: Option<Timestamp>,
    /// Created before this time.
    pub created_before: Option<Timestamp>,
    /// Failed for good at this time or later.
    pub failed_from: Option<Timestamp>,
    /// Failed for good before this time.
    pub failed_before: Option<Timestamp>,
}

impl JobFilter {
    /// All jobs of a tenant, or of every one.
    pub fn of(scope: impl Into<Scope>) -> Self {
        Self {
            scope: scope.into(),
            states: Vec::new(),
            queue: None,
            kind: None,
            tag: None,
            code: None,
            limit_key: None,
            created_from: None,
            created_before: None,
            failed_from: None,
            failed_before: None,
        }
    }

    /// Does the job have all that is asked for?
    pub fn matches(&self, job: &Job) -> bool {
        let spec = &job.spec;
        let code = job.error.as_ref().map(|failure| failure.code.as_str());
        let failed_at = job.finished_at.filter(|_| job.state == State::Failed);
        self.scope.admits(&spec.tenant)
            && (self.states.is_empty() || self.states.contains(&job.state))
            && self.queue.as_ref().is_none_or(|queue| *queue == spec.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == spec.kind)
            && self.tag.as_ref().is_none_or(|tag| spec.tags.contains(tag))
            && self.code.as_deref().is_none_or(|wanted| code == Some(wanted))
            && self.limit_key.as_ref().is_none_or(|key| spec.limit_key.as_ref() == Some(key))
            && self.created_from.is_none_or(|from| spec.created_at >= from)
            && self.created_before.is_none_or(|before| spec.created_at < before)
            && self.failed_from.is_none_or(|from| failed_at.is_some_and(|at| at >= from))
            && self.failed_before.is_none_or(|before| failed_at.is_some_and(|at| at < before))
    }

    /// Does it ask for anything besides a time of creation? Jobs of every tenant in the order of the list need no index.
    pub(crate) fn needs_index(&self) -> bool {
        let Self {
            scope,
            states,
            queue,
            kind,
            tag,
            code,
            limit_key,
            created_from: _,
            created_before: _,
            failed_from,
            failed_before,
        } = self;
        scope.tenant().is_some()
            || !states.is_empty()
            || queue.is_some()
            || kind.is_some()
            || tag.is_some()
            || code.is_some()
            || limit_key.is_some()
            || failed_from.is_some()
            || failed_before.is_some()
    }
}

/// A part of a list, newest first.
#[derive(Clone, Debug)]
pub struct Page<T> {
    /// What was found.
    pub items: Vec<T>,
    /// Where the next page begins; none at the end.
    pub next: Option<Position>,
    /// Did the search stop at [`PageFrom::VISITS_MAX`] before the page was full? Only such a page can be short, or
    /// empty, and have a next one.
    pub stopped: bool,
    /// How many rows and index entries were looked at, for those who measure.
    pub visited: u64,
}

impl<T> Page<T> {
    /// A page with nothing on it, and nothing after it.
    pub fn empty() -> Self {
        Self { items: Vec::new(), next: None, stopped: false, visited: 0 }
    }
}

/// How many tokens are told at once.
pub const TOKENS_MAX: i64 = 10_000;

/// A place in a list, for a read that goes on from there. Only the store that gave it knows what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The place of the last item in the order of the list.
    pub(crate) at: u64,
    /// Its id, where several items can have one place.
    pub(crate) id: u128,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.at, self.id)
    }
}

impl FromStr for Position {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const UNKNOWN: &str = "no list has such a place";
        let (at, id) = text.split_once('-').ok_or(UNKNOWN)?;
        let at = u64::from_str_radix(at, 16).map_err(|_| UNKNOWN)?;
        let id = u128::from_str_radix(id, 16).map_err(|_| UNKNOWN)?;
        Ok(Self { at, id })
    }
}

/// Where a list is read on.
#[derive(Clone, Copy, Debug)]
pub struct PageFrom {
    /// The `next` of the page before; none at the beginning.
    pub from: Option<Position>,
    /// How many items at the most.
    pub limit: usize,
}

impl PageFrom {
    /// The most items of one page.
    pub const LIMIT_MAX: usize = 1_000;
    /// The most rows and index entries that one read looks at.
    pub const VISITS_MAX: u64 = 100_000;
    /// How many of the newest rows are looked at before an index is asked.
    pub(crate) const NEWEST_MIN: usize = 256;

    /// The limit, inside its bounds.
    pub(crate) fn items(&self) -> usize {
        self.limit.clamp(1, Self::LIMIT_MAX)
    }
}

/// Which dead letters are asked for.
#[derive(Clone, Debug)]
pub struct LetterFilter {
    /// Whose letters.
    pub scope: Scope,
    /// What became of them; any, if nothing is said.
    pub state: Option<LetterState>,
    /// Of which jobs: those that have all of this. Its scope and states do not matter.
    pub jobs: JobFilter,
}

impl LetterFilter {
    /// All letters of a tenant, or of every one.
    pub fn of(scope: impl Into<Scope>) -> Self {
        let scope = scope.into();
        Self { jobs: JobFilter::of(scope.clone()), scope, state: None }
    }

    /// The jobs of the letters.
    pub(crate) fn failed_jobs(&self) -> JobFilter {
        let (scope, states) = (self.scope.clone(), vec![State::Failed]);
        JobFilter { scope, states, ..self.jobs.clone() }
    }

    /// Does the letter have what can be told without its job?
    pub(crate) fn matches_alone(&self, letter: &DeadLetter) -> bool {
        let JobFilter { code, failed_from, failed_before, .. } = &self.jobs;
        self.scope.admits(&letter.tenant)
            && self.state.is_none_or(|state| state == letter.state)
            && code.as_ref().is_none_or(|code| *code == letter.failure.code)
            && failed_from.is_none_or(|from| letter.created_at >= from)
            && failed_before.is_none_or(|before| letter.created_at < before)
    }

    /// Does it ask for something that only the job tells?
    pub(crate) fn asks_jobs(&self) -> bool {
        let JobFilter { queue, kind, tag, limit_key, created_from, created_before, .. } =
            &self.jobs;
        queue.is_some()
            || kind.is_some()
            || tag.is_some()
            || limit_key.is_some()
            || created_from.is_some()
            || created_before.is_some()
    }
}

/// Dead letters that have one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterGroup {
    /// The code of the failure.
    pub code: String,
    /// Its message, without what differs from one letter to the next.
    pub cause: String,
    /// How many there are.
    pub count: u64,
    /// When the oldest was written.
    pub first_at: Timestamp,
    /// When the newest was written.
    pub last_at: Timestamp,
    /// The newest of them.
    pub newest: DlqId,
}

impl LetterGroup {
    /// The group of a letter, alone.
    #[cfg(feature = "postgres")]
    pub(crate) fn of(letter: &DeadLetter) -> Self {
        Self {
            code: letter.failure.code.clone(),
            cause: letter.cause(),
            count: 1,
            first_at: letter.created_at,
            last_at: letter.created_at,
            newest: letter.id,
        }
    }
}

/// How dead letters in one state are grouped: how many there are, and the largest groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterGroups {
    /// The largest first, [`LetterGroups::MAX`] at the most.
    pub groups: Vec<LetterGroup>,
    /// How many letters there are in all groups.
    pub letters: u64,
    /// Were there more groups?
    pub more: bool,
}

impl LetterGroups {
    /// How many groups are told.
    pub const MAX: usize = 1_000;

    /// Puts groups of several tenants together.
    pub(crate) fn of(groups: Vec<LetterGroup>, letters: u64) -> Self {
        let mut by_cause: BTreeMap<(String, String), LetterGroup> = BTreeMap::new();
        for group in groups {
            let known = by_cause.entry((group.code.clone(), group.cause.clone()));
            let known = known.or_insert_with(|| LetterGroup { count: 0, ..group.clone() });
            known.count += group.count;
            known.first_at = known.first_at.min(group.first_at);
            let newest = (known.last_at, known.newest).max((group.last_at, group.newest));
            (known.last_at, known.newest) = newest;
        }
        let mut groups: Vec<LetterGroup> = by_cause.into_values().collect();
        // Of one size they are in the order of their codes and causes.
        groups.sort_by_key(|group| Reverse(group.count));
        let more = groups.len() > Self::MAX;
        groups.truncate(Self::MAX);
        Self { groups, letters, more }
    }
}

/// A worker session as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionView {
    /// The worker.
    pub worker: WorkerId,
    /// When the last of its leases runs out.
    pub lapses_at: Timestamp,
    /// How often it was renewed.
    pub renewals: u64,
    /// How many jobs it holds.
    pub held: u64,
}

/// What a worker listens to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listens {
    /// Its queues.
    pub queues: Vec<Queue>,
    /// The kinds that it can run; all, if none is named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<Kind>,
    /// Jobs of this tenant only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

impl Listens {
    /// Is it for the jobs of everybody, or of a tenant that the scope may see?
    pub(crate) fn is_seen_by(&self, scope: &Scope) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| scope.admits(tenant))
    }
}

/// What a worker says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It listens to this from now on.
    To(Listens),
    /// It is still there, and listens to what it last said. Whoever said nothing, or goodbye, still listens to nothing.
    Still,
    /// It listens to nothing any more. What it holds stays as it is, until it is settled or given back, or its lease
    /// runs out.
    Goodbye,
}

/// A worker that listens, and how it is known to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListeningWorker {
    /// The worker.
    pub worker: WorkerId,
    /// What it listens to.
    pub listens: Listens,
    /// When it was last heard of. None, if it is there now: a process that lives vouches for it.
    pub last_seen_at: Option<Timestamp>,
    /// It may have been heard of for so long after that time, and whoever told us does not know.
    pub unsure_for: Duration,
    /// How many jobs it holds.
    pub holds: usize,
}

impl ListeningWorker {
    /// What a row says: when the worker last gave its word, unless a process vouches for it. A worker that is well gives it
    /// again whenever [`Standing::WORD_EVERY`] has passed, so it may have been heard of since.
    pub(crate) fn of_row(
        worker: WorkerId,
        listens: Listens,
        vouched: bool,
        listened_at: Option<Timestamp>,
    ) -> Self {
        let last_seen_at = listened_at.filter(|_| !vouched);
        Self { worker, listens, last_seen_at, unsure_for: Standing::WORD_EVERY, holds: 0 }
    }
}

/// Everything that says why a job is not running, as one look finds it.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The job.
    pub job: Job,
    /// What time it is, by the store's clock.
    pub now: Timestamp,
    /// The rules that would keep it from being claimed now, as the claim itself would find it.
    pub blocked: Vec<Blocked>,
    /// Those rules.
    pub rules: Vec<Rule>,
    /// Who holds the slots of those rules, at most [`Standing::HOLDERS_MAX`] for each.
    pub holders: Vec<Holder>,
    /// The workers that listen, also those that have been silent for a short while.
    pub listening: Vec<ListeningWorker>,
    /// How many jobs of its queue and tenant that can be claimed come before it, counted up to
    /// [`Standing::BEFORE_MAX`].
    pub before: u64,
    /// How many jobs of its queue run that the scope may see, and for how long on average.
    pub running: Option<(u64, Duration)>,
}

impl Standing {
    /// How many holders are named for each rule.
    pub const HOLDERS_MAX: usize = 10;
    /// How far jobs are counted that come before.
    pub const BEFORE_MAX: u64 = 10_000;
    /// Whoever is not vouched for listens as long as this after it last said so, and as long as its leases last.
    pub const LISTENS_FOR: Duration = Duration::from_secs(90);
    /// How often a worker that nobody vouches for gives its word again. Each word is a write, so not more often; and
    /// whoever reads it on another node knows no later than this that a worker is gone.
    pub const WORD_EVERY: Duration = Duration::from_secs(10);
    /// What a worker said is freed so long after it last said so, unless a process that lives answers for it.
    pub const REMEMBERED_FOR: Duration = Duration::from_secs(600);
}

/// A job that holds a slot that another waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The rule.
    pub rule: RuleName,
    /// The job.
    pub job_id: JobId,
    /// Who runs it.
    pub worker: WorkerId,
}

/// A part of the history of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventsPage {
    /// The events, in order.
    pub items: Vec<PlacedEvent>,
    /// Are there more after them?
    pub more: bool,
}

/// A part of the attempts of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptsPage {
    /// The attempts, in order.
    pub items: Vec<Attempt>,
    /// Are there more after them?
    pub more: bool,
}

impl AttemptsPage {
    /// The most bytes of figures and messages in one part. One attempt is there at any size.
    pub const BYTES_MAX: usize = 4 * 1024 * 1024;

    /// As many of these attempts as a part holds, from this number on, and the figures of each.
    pub(crate) fn fill<E>(
        attempts: Vec<Attempt>,
        after: u32,
        limit: usize,
        mut stats: impl FnMut(u32) -> Result<Option<String>, E>,
    ) -> Result<Self, E> {
        let (mut page, mut bytes) = (Self { items: Vec::new(), more: false }, 0);
        for mut attempt in attempts.into_iter().filter(|attempt| attempt.attempt > after) {
            page.more = page.items.len() >= limit.max(1);
            if page.more {
                break;
            }
            let message = attempt.failure.as_ref().map_or(0, |failure| failure.message.len());
            let stats = stats(attempt.attempt)?;
            bytes += message + stats.as_ref().map_or(0, String::len);
            page.more = bytes > Self::BYTES_MAX && !page.items.is_empty();
            if page.more {
                break;
            }
            attempt.stats = stats.and_then(|stats| Payload::parse(&stats, usize::MAX).ok());
            page.items.push(attempt);
        }
        Ok(page)
    }
}

/// An event, and where it stands in the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedEvent {
    /// The event.
    pub event: Event,
    /// The number that the feed gives it.
    pub feed_number: u64,
}

/// The job of a queue that has been ready for longest, of those of one tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldestReady {
    /// Whose job it is.
    pub tenant: TenantId,
    /// The queue.
    pub queue: Queue,
    /// Since when.
    pub since: Timestamp,
}

/// What time has brought, and when it brings more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Jobs whose alarm rings, at most as many as were asked for. A job can be here twice, for an alarm of its
    /// own and for its lease: whichever op comes second finds the job changed.
    pub jobs: Vec<DueJob>,
    /// Schedules whose time has come, longest first, and as many at the most.
    pub schedules: Vec<DueSchedule>,
    /// What time it is, by the store's clock.
    pub now: Timestamp,
    /// When the next alarm rings, the next lease lapses or the next slot comes, after `now`; none, if none is set. It is `now` if
    /// there may be more to fetch.
    pub next_at: Option<Timestamp>,
    /// When the next retry after `now` can be claimed.
    pub next_retry_at: Option<Timestamp>,
}

/// A job whose alarm rings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueJob {
    /// Whose job it is.
    pub tenant: TenantId,
    /// The job.
    pub job_id: JobId,
    /// The version that was seen. The op of the alarm names it.
    pub version: u64,
    /// What rings.
    pub alarm: Alarm,
    /// The worker that holds the job, if one does.
    pub held_by: Option<WorkerId>,
}

/// A schedule whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueSchedule {
    /// Whose schedule it is.
    pub tenant: TenantId,
    /// Its name.
    pub name: ScheduleName,
    /// The version that was seen. The op names it.
    pub version: u64,
}

/// What follows for another job and is not carried out yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFollowUp {
    /// Its number, which is never given again.
    pub id: i64,
    /// Whose jobs they are.
    pub tenant: TenantId,
    /// What follows.
    pub follow_up: FollowUp,
}

/// What a handler gave back for one attempt, byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The attempt.
    pub attempt: u32,
    /// The result.
    pub result: Option<String>,
    /// What is left to do.
    pub remaining: Option<String>,
    /// Figures.
    pub stats: Option<String>,
}

/// How far a handler said it had come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The epoch that said it.
    pub epoch: Epoch,
    /// When it was said, by the store's clock.
    pub at: Timestamp,
    /// What was said, byte for byte.
    pub value: String,
}

/// The ledger of a durable job, or what of it is not before its last checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Steps: those on record in the order of their records, then those that are not.
    pub steps: Vec<Step>,
    /// What came from outside, in the order in which it came.
    pub mails: Vec<Mail>,
    /// What was handed in late.
    pub effects: Vec<Effect>,
}

impl Ledger {
    pub(crate) fn new(mut steps: Vec<Step>, mails: Vec<Mail>, effects: Vec<Effect>) -> Self {
        steps.sort_by_key(|step| step.record.as_ref().map_or(u32::MAX, |record| record.number));
        Self { steps, mails, effects }
    }
}

/// What one step of retention did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Jobs that are gone, with all that was theirs.
    pub jobs: u64,
    /// Log rows that are gone.
    pub log_rows: u64,
    /// Is the pass not over yet? Then the next step goes on where this one ended.
    pub more: bool,
}

/// A part of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// What the scope may see of it, in the order of the store.
    pub events: Vec<FeedEvent>,
    /// The last event that was looked at, whosever it is: the next part begins after it. It is where the part began if
    /// there is nothing newer.
    pub upto: u64,
}

impl Feed {
    /// About how many bytes of events a part has at the most. One that is larger alone is told alone.
    pub const BYTES_MAX: usize = 4 << 20;

    /// A part with nothing in it.
    pub(crate) fn empty(after: u64) -> Self {
        Self { events: Vec::new(), upto: after }
    }

    /// Is there no event after this one, whatever happens? Numbers of rows are smaller.
    pub(crate) fn is_beyond(after: u64) -> bool {
        i64::try_from(after).is_err() || after == i64::MAX as u64
    }
}

/// Adds events to a part of the feed until it is full, in the middle of a commit if need be.
pub(crate) struct FeedFiller {
    pub(crate) feed: Feed,
    limit: usize,
    bytes: usize,
}

impl FeedFiller {
    pub(crate) fn new(after: u64, limit: u32) -> Self {
        let limit = usize::try_from(limit.max(1)).unwrap_or(usize::MAX);
        Self { feed: Feed::empty(after), limit, bytes: 0 }
    }

    /// Adds the lines of a row of the log, of which the first has this number. Is the part full?
    pub(crate) fn add(
        &mut self,
        first: u64,
        count: u64,
        at: Timestamp,
        tenant: &TenantId,
        lines: &[&serde_json::value::RawValue],
    ) -> bool {
        for (number, line) in (first..).zip(lines) {
            if number <= self.feed.upto {
                continue;
            }
            let length = line.get().len();
            let is_over = self.bytes + length > Feed::BYTES_MAX && !self.feed.events.is_empty();
            if is_over || self.feed.events.len() == self.limit {
                return true;
            }
            self.bytes += length;
            self.feed.upto = number;
            let (tenant, line) = (tenant.clone(), line.get().to_owned());
            self.feed.events.push(FeedEvent { number, tenant, at, line });
        }
        self.feed.upto = self.feed.upto.max((first + count).saturating_sub(1));
        self.feed.events.len() == self.limit
    }
}

/// One event of the feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedEvent {
    /// Its number in the store. Numbers have no gap from one event to the next.
    pub number: u64,
    /// Whose job it speaks of.
    pub tenant: TenantId,
    /// When it happened.
    pub at: Timestamp,
    /// The event as the log keeps it: an array, if it is part of a job's history; an object, if it tells
    /// what became of an enqueue of a user's own transaction that made no job, or if it is a note.
    pub line: String,
}

impl FeedEvent {
    /// The event, if it is part of a job's history; none for notes and results of the inbox. A creation is told without
    /// what was asked for, which stands in the job's row: its fact is plain.
    pub fn event(&self) -> Option<Event> {
        log::decode_alone(&self.line, self.at)
    }
}

/// What became of an enqueue of a user's own transaction that made no job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxResult {
    /// The number of the event that tells it.
    pub event: u64,
    /// The id that the user was given.
    pub job_id: JobId,
    /// Whose it is.
    pub tenant: TenantId,
    /// When the user asked.
    pub asked_at: Timestamp,
    /// When it was decided.
    pub at: Timestamp,
    /// What became of it.
    pub outcome: InboxOutcome,
    /// The job that the request means, or that stands in its way.
    pub existing: Option<JobId>,
    /// The code of the refusal; none for a hit.
    pub code: Option<String>,
    /// The refusal in a sentence; none for a hit.
    pub why: Option<String>,
    /// What was asked for, but for its payload, as it stood in the inbox; none for a hit.
    pub request: Option<String>,
    /// The payload, byte for byte; none for a hit.
    pub payload: Option<String>,
}

/// How an enqueue of a user's own transaction ended without a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InboxOutcome {
    /// Its key is known, and it asked for the same: the existing job is the one that it means.
    Hit,
    /// Its key is known, and it asked for something else.
    Conflict,
    /// The rules say no for another reason.
    Refused,
}

impl InboxOutcome {
    /// Its word in rows and events.
    pub const fn as_str(self) -> &'static str {
        match self {
            InboxOutcome::Hit => "hit",
            InboxOutcome::Conflict => "conflict",
            InboxOutcome::Refused => "refused",
        }
    }

    /// The outcome of this word.
    pub fn parse(word: &str) -> Option<Self> {
        let all = [InboxOutcome::Hit, InboxOutcome::Conflict, InboxOutcome::Refused];
        all.into_iter().find(|outcome| outcome.as_str() == word)
    }
}

/// What came of following a job's chain of hashes from its first event to its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The job.
    pub job_id: JobId,
    /// How many events there are.
    pub events: u64,
    /// The head of the chain, as the job's row keeps it. Whoever writes it down elsewhere can tell later whether
    /// anything up to here was changed.
    pub head: Digest,
    /// Where the chain is broken first; none, if it is whole.
    pub broken_at: Option<BrokenLink>,
}

impl Verified {
    /// Is the history the one that was written?
    pub fn is_whole(&self) -> bool {
        self.broken_at.is_none()
    }
}

/// The first event of a job that does not follow from what is before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenLink {
    /// The number that the event has, or should have.
    pub number: u64,
    /// What should be there.
    pub expected: String,
    /// What is there; none, if it is nothing that can be told.
    pub found: Option<String>,
    /// What is wrong, in words.
    pub why: String,
}
