//! One commit: what a batch of writes does to the rows that were loaded for it.
//!
//! A commit has three phases. First the writes that name a job are decided in order over a working set
//! of rows. Then claims: `admit` shares out what is ready, less what the first phase touched, and each
//! grant is decided. Then everything is saved at once. A backend does the loading and saving; what
//! happens in between is here and has no IO, so it is the same on every database.

mod claims;
mod rules;
mod schedules;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

pub(crate) use self::{
    claims::{Grant, Grants},
    schedules::enqueues,
};
use self::{schedules::Schedules, tokens::Tokens};
pub use self::{
    schedules::{ScheduleChange, ScheduleKey, Scheduled, jobs_of},
    tokens::TokenChange,
};
use crate::{
    IdMap, IdSet,
    job_row::GroupName,
    read::Word,
    rules::{Outcome, RuleChange},
};
use windlass_kernel::{
    AcceptClock, Answer, Approval, Current, DeadLetter, DlqId, Event, FollowUp, IdempotencyKey,
    IdempotencyScope, Job, JobId, Kind, MarkName, NewPayload, Note, Op, Payload, Progress, Queue,
    Refusal, Rule, RuleName, ScheduleOp, State, Task, TaskId, TenantId, Timestamp, Token, TokenId,
    TokenOp, TraceId, Transition, UniqueKey, WorkerId, decide,
    ids::ClaimId,
    ops,
    plain::check_plain,
    rule::{Part, RuleOp, RuleState},
    schedule::Action,
};

/// One thing to be written.
#[derive(Clone, Debug)]
pub enum Write {
    /// An op on one job of this tenant.
    Op {
        /// Whose job it is. Another tenant's job is not found.
        tenant: TenantId,
        /// What is to happen.
        op: Op,
    },
    /// A worker wants jobs.
    Claim(ClaimMany),
    /// A worker keeps all its leases.
    RenewSession {
        /// The worker.
        worker: WorkerId,
        /// How long from now.
        lease: Duration,
    },
    /// What followed for another job is carried out. It is sent after the op that it asked for, which finds
    /// itself done if it is sent again: so nothing is lost in between.
    FollowUpDone {
        /// Its number.
        id: i64,
    },
    /// A rule is set, or taken away.
    Rule(RuleOp),
    /// A worker says what it listens to, that it is still there, or goodbye.
    Listens {
        /// The worker.
        worker: WorkerId,
        /// Whose worker it is; of every tenant, if none is named.
        tenant: Option<TenantId>,
        /// What it says.
        word: Word,
    },
    /// An op on one schedule, and the jobs that it makes.
    Schedule(ScheduleOp),
    /// A token is issued, or revoked.
    Token(TokenOp),
    /// The clock that the store follows is right, whatever it did: it is taken as it is.
    Clock(AcceptClock),
    /// A follower of the feed has come so far. A smaller number than it said before changes nothing.
    Mark {
        /// Who follows.
        name: MarkName,
        /// The last event that it is done with.
        number: u64,
    },
}

impl Write {
    /// Does one of these say that the clock is right?
    pub(crate) fn accept_clock(writes: &[Write]) -> bool {
        writes.iter().any(|write| matches!(write, Write::Clock(_)))
    }

    /// Refuses what is wrong whatever is stored. An op is judged by its own rules, but for its tenant:
    /// that the caller was let in as one tenant says nothing about another that it names.
    pub fn check(&self) -> Result<(), Refusal> {
        let lease = match self {
            Write::Op { tenant, op: Op::Enqueue(op) } if op.tenant != *tenant => {
                return Err(Refusal::NotFound { what: "tenant" });
            }
            Write::Op { .. } | Write::FollowUpDone { .. } | Write::Schedule(_) => return Ok(()),
            Write::Mark { number, .. } if i64::try_from(*number).is_err() => {
                return Err(Refusal::invalid("number", "is of no event"));
            }
            Write::Rule(_) | Write::Token(_) => return Ok(()),
            Write::Mark { .. } | Write::Clock(_) => return Ok(()),
            Write::Listens { word: Word::To(to), .. } => {
                return check_names(&to.queues, &to.kinds);
            }
            Write::Listens { word: Word::Still | Word::Goodbye, .. } => return Ok(()),
            Write::Claim(wanted) => {
                check_plain("worker_id", wanted.worker.as_str())?;
                return wanted.check();
            }
            Write::RenewSession { lease, .. } => *lease,
        };
        check_lease(lease)
    }
}

/// A worker wants jobs.
#[derive(Clone, Debug)]
pub struct ClaimMany {
    /// The identity of the claim: once it was granted something, the same again gets what it still holds of that, and
    /// nothing else, for as long as it is remembered ([`ops::Claim::REMEMBERED_FOR`]).
    pub claim_id: ClaimId,
    /// The worker.
    pub worker: WorkerId,
    /// The trace of the request, if it brought one.
    pub trace_id: Option<TraceId>,
    /// Jobs of this tenant only; of every tenant, if none is named.
    pub tenant: Option<TenantId>,
    /// Of these tenants it has as many jobs as it may: none of theirs.
    pub except: Vec<TenantId>,
    /// The queues it listens to.
    pub queues: Vec<Queue>,
    /// The kinds it can run; all, if none is named.
    pub kinds: Vec<Kind>,
    /// How many it wants at the most.
    pub max: usize,
    /// How long the leases last.
    pub lease: Duration,
    /// Start them at once.
    pub start: bool,
    /// Other workers of the same process. A job that must be alone is alone in its process.
    pub neighbours: Vec<WorkerId>,
}

impl ClaimMany {
    /// The most queues that one claim names, and the most kinds. A claim is looked at while other writes wait.
    pub const NAMES_MAX: usize = 1_000;
    /// The most bytes of jobs that one claim is granted: their payloads, and what their last failures said. One job is
    /// granted whatever its size. What does not fit is left as it is, and the claim is told to ask again.
    pub const BYTES_MAX: usize = 8 * 1024 * 1024;

    /// Refuses what is wrong whatever is stored.
    pub fn check(&self) -> Result<(), Refusal> {
        check_names(&self.queues, &self.kinds)?;
        check_lease(self.lease)
    }

    /// Which groups it wants jobs of.
    pub(crate) fn wants(&self) -> Wants<'_> {
        let (tenant, kinds) = (self.tenant.as_ref(), self.kinds.iter().collect());
        Wants { tenant, except: &self.except, kinds }
    }
}

/// How much a claim has been granted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filled {
    jobs: usize,
    bytes: usize,
}

impl Filled {
    /// Adds a job with a payload of so many bytes, if it fits. The first one always does.
    pub(crate) fn add(&mut self, job: &Job, payload_bytes: usize) -> bool {
        let error = job.error.as_ref().map_or(0, |error| error.message.len());
        let bytes = self.bytes.saturating_add(payload_bytes).saturating_add(error);
        let fits = self.jobs == 0 || bytes <= ClaimMany::BYTES_MAX;
        if fits {
            *self = Self { jobs: self.jobs + 1, bytes };
        }
        fits
    }
}

/// How many jobs are shared out to a claim. If those that it may have do not fit into one answer, fewer are shared out
/// anew, so that everybody's turns and rates are as if it had asked for no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) max: usize,
    /// Is it fewer than the claim wants?
    pub(crate) is_cut: bool,
}

impl Asked {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, is_cut: false }
    }

    /// Of those that were shared out so many fit, and not all. It ends: from the second time on there are a quarter fewer.
    pub(crate) fn cut(&mut self, fitting: usize) {
        let most = if self.is_cut { self.max * 3 / 4 } else { self.max };
        *self = Self { max: fitting.min(most).max(1), is_cut: true };
    }

    /// When the claim is to ask again: at once, if it was cut.
    pub(crate) fn again_at(self, by_rules: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
        if self.is_cut { Some(now) } else { by_rules }
    }
}

/// Which groups a claim wants jobs of. Its kinds are a set: there may be as many groups as kinds.
pub(crate) struct Wants<'a> {
    tenant: Option<&'a TenantId>,
    except: &'a [TenantId],
    /// All, if none is named.
    kinds: HashSet<&'a Kind>,
}

impl Wants<'_> {
    /// Does the claim want jobs of this group?
    pub(crate) fn admits(&self, name: &GroupName) -> bool {
        self.tenant.is_none_or(|only| *only == name.tenant)
            && !self.except.contains(&name.tenant)
            && (self.kinds.is_empty() || self.kinds.contains(&name.kind))
    }
}

fn check_lease(lease: Duration) -> Result<(), Refusal> {
    if lease < ops::Claim::LEASE_MIN || lease > ops::Claim::LEASE_MAX {
        return Err(Refusal::invalid("lease_ms", "must lie between 100 ms and 24 hours"));
    }
    Ok(())
}

/// Refuses a claim or a worker that names too many queues or kinds.
fn check_names(queues: &[Queue], kinds: &[Kind]) -> Result<(), Refusal> {
    let check = |field, count| match count > ClaimMany::NAMES_MAX {
        true => Err(Refusal::invalid(
            field,
            format!(
                "must be at most {} names, not {count}: let several workers share them",
                ClaimMany::NAMES_MAX
            ),
        )),
        false => Ok(()),
    };
    check("queues", queues.len())?;
    check("kinds", kinds.len())
}

/// What a write is told.
#[derive(Clone, Debug)]
pub enum Reply {
    /// What the op did.
    Answer(Answer),
    /// The jobs that the worker got.
    Granted {
        /// The jobs.
        jobs: Vec<Granted>,
        /// Was the same claim granted something before? Then these are the jobs that it still holds of what it got, and it
        /// gets no others, however often it is sent.
        repeated: bool,
        /// When to ask again at the latest, if a rule holds jobs back that time alone lets go: at once, if there is more
        /// than fits into one answer.
        again_at: Option<Timestamp>,
    },
    /// The session after its renewal, and what the worker has to know.
    Renewed {
        /// When its leases run out.
        until: Timestamp,
        /// Jobs it holds that are to be cancelled.
        cancelled: Vec<JobId>,
        /// Jobs it holds.
        held: Vec<JobId>,
    },
    /// What the op on a schedule did.
    Scheduled(Box<Scheduled>),
    /// It is so, and there is nothing to tell.
    Done,
    /// The rule as it stands, or as it stood before it was taken away.
    Rule(Rule),
    /// The token as it stands.
    Token(Token),
}

/// A job that a worker got.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The job, with its lease.
    pub job: Arc<Job>,
    /// Its payload, byte for byte.
    pub payload: String,
}

/// Rows that have to be loaded before anything can be decided.
#[derive(Debug, Default)]
pub struct Needs {
    /// Jobs by id. One may stand here twice.
    pub jobs: Vec<JobId>,
    /// Jobs by key.
    pub keys: BTreeSet<Key>,
    /// Tasks that a new job runs.
    pub tasks: BTreeSet<(TenantId, TaskId)>,
    /// Those of them that it may run again: the dead letters of their last jobs are needed too.
    pub reruns: BTreeSet<(TenantId, TaskId)>,
    /// Dead letters by id; their jobs and tasks are needed too.
    pub letters: BTreeSet<DlqId>,
    /// Jobs whose task is needed.
    pub tasks_of: IdSet,
    /// Jobs that are not at their end, by what is unique about them.
    pub uniques: BTreeSet<(TenantId, UniqueKey)>,
    /// Schedules by name, and whether their last jobs are at their end.
    pub schedules: BTreeSet<ScheduleKey>,
    /// Tokens by id.
    pub tokens: BTreeSet<TokenId>,
    /// All tokens of admins that are not revoked.
    pub admins: bool,
}

/// Where an idempotency key stands.
pub type Key = (TenantId, IdempotencyScope, IdempotencyKey);

impl Needs {
    /// What these writes need.
    pub fn of(writes: &[Write]) -> Self {
        let mut needs = Needs::default();
        for write in writes {
            if let Write::Schedule(op) = write {
                needs.schedules.insert((op.tenant.clone(), op.name.clone()));
                // The id of a job that is made now may be taken.
                if let Action::Trigger { job_id, .. } = op.action {
                    needs.jobs.push(job_id);
                }
            }
            if let Write::Token(op) = write {
                needs.tokens.insert(op.id());
                needs.admins |= matches!(op, TokenOp::Revoke(_));
            }
            let Write::Op { tenant, op } = write else { continue };
            needs.jobs.extend(op.job_id());
            // An enqueue names the same job twice.
            needs.jobs.extend(op.new_job_id().filter(|new| op.job_id() != Some(*new)));
            needs.jobs.extend(op.relative());
            needs.letters.extend(op.dlq_id());
            // The job of a letter comes with the other jobs, so that jobs are locked before letters by every op.
            needs.jobs.extend(op.dlq_id().map(DlqId::job_id));
            match op {
                Op::Enqueue(op) => {
                    // The key of an enqueue without one is its job id, which is looked up anyway.
                    if op.new.idempotency != ops::Idempotency::OwnId {
                        needs.keys.insert((tenant.clone(), op.scope(), op.key()));
                    }
                    if let Some(task) = &op.new.task {
                        let name = (tenant.clone(), task.task_id.clone());
                        needs.reruns.extend(task.may_rerun.then(|| name.clone()));
                        needs.tasks.insert(name);
                    }
                    let unique = op.new.unique_key.clone();
                    needs.uniques.extend(unique.map(|unique| (tenant.clone(), unique)));
                }
                Op::Rerun(op) => {
                    needs.tasks_of.insert(op.job_id);
                }
                _ => {}
            }
        }
        needs
    }

    /// Is it more than jobs, by their ids or by their keys?
    pub fn more_than_jobs(&self) -> bool {
        !(self.tasks.is_empty()
            && self.letters.is_empty()
            && self.tasks_of.is_empty()
            && self.uniques.is_empty()
            && self.schedules.is_empty()
            && self.tokens.is_empty())
    }
}

/// The rows of one commit, and what becomes of them. A backend keeps beside each what it alone knows.
#[derive(Debug, Default)]
pub struct WorkingSet<P> {
    jobs: IdMap<Row<P>>,
    keys: HashMap<Key, JobId>,
    tasks: HashMap<(TenantId, TaskId), Task>,
    letters: HashMap<DlqId, DeadLetter>,
    uniques: HashMap<(TenantId, UniqueKey), JobId>,
    rules: Arc<Vec<Rule>>,
    /// What became of executions, if a breaker wants to hear it.
    outcomes: Option<Vec<Outcome>>,
    schedules: Schedules,
    tokens: Tokens,
    /// Claims that were granted something.
    claims: HashSet<ClaimId>,
    changes: Changes,
    incarnation: u32,
}

/// A job in a working set.
#[derive(Debug)]
pub struct Row<P> {
    /// The job as it stands now.
    pub job: Arc<Job>,
    /// What the backend keeps beside it.
    pub place: P,
    /// The job as it was before this commit, if the commit changed it.
    pub before: Option<Arc<Job>>,
    is_new: bool,
}

#[cfg(feature = "postgres")]
impl<P> Row<P> {
    /// Did the commit make it, or change it?
    pub(crate) fn is_changed(&self) -> bool {
        self.is_new || self.before.is_some()
    }
}

/// Everything that a commit has to save.
#[derive(Debug, Default)]
pub struct Changes {
    /// New jobs, in the order of their creation, with their payloads.
    pub created: Vec<(JobId, NewPayload)>,
    /// Jobs that were there and changed, in the order of their first change.
    pub updated: Vec<JobId>,
    /// Events in order, by tenant.
    pub events: BTreeMap<TenantId, Vec<Event>>,
    /// What handlers gave back.
    pub outputs: Vec<Output>,
    /// How far handlers say they have come: the last report of each job.
    pub progress: BTreeMap<JobId, Progress>,
    /// Dead letters as they are now.
    pub letters: BTreeMap<DlqId, DeadLetter>,
    /// What people said about them.
    pub approvals: Vec<Approval>,
    /// The next attempts of tasks.
    pub tasks: Vec<Task>,
    /// What follows for other jobs.
    pub follow_ups: Vec<(TenantId, FollowUp)>,
    /// What followed for other jobs and is carried out, by its number.
    pub follow_ups_done: Vec<i64>,
    /// Rules that were set or taken away, in order.
    pub rules: Vec<RuleChange>,
    /// What rules remember from now on.
    pub rule_states: BTreeMap<(RuleName, Part), RuleState>,
    /// Facts about what is not a job, in order.
    pub notes: Vec<Note>,
    /// What becomes of schedules.
    pub schedules: BTreeMap<ScheduleKey, ScheduleChange>,
    /// What becomes of tokens.
    pub tokens: BTreeMap<TokenId, TokenChange>,
    /// How far followers of the feed have come.
    pub marks: BTreeMap<MarkName, u64>,
    /// Claims that were granted something for the first time.
    pub claims: Vec<ClaimId>,
}

/// What a handler gave back for one attempt.
#[derive(Debug)]
pub struct Output {
    /// The job.
    pub job_id: JobId,
    /// The attempt.
    pub attempt: u32,
    /// The result.
    pub result: Option<Payload>,
    /// What is left to do.
    pub remaining: Option<Payload>,
    /// Figures.
    pub stats: Option<Payload>,
}

impl<P: Default> WorkingSet<P> {
    /// An empty set in a store of this incarnation, with room for so many jobs.
    pub fn new(incarnation: u32, room: usize) -> Self {
        let jobs = IdMap::with_capacity_and_hasher(room, std::hash::BuildHasherDefault::default());
        Self { incarnation, jobs, ..Self::default() }
    }

    /// Adds a job that was loaded.
    pub fn add_job(&mut self, job: impl Into<Arc<Job>>, place: P) {
        self.add_row(Row { job: job.into(), place, before: None, is_new: false });
    }

    fn add_row(&mut self, row: Row<P>) {
        let (id, spec) = (row.job.id, &row.job.spec);
        if !spec.idempotency_scope.is_own_id() {
            let (scope, key) = (spec.idempotency_scope.clone(), spec.idempotency_key.clone());
            self.keys.insert((spec.tenant.clone(), scope, key), id);
        }
        if let Some(unique) = spec.unique_key.as_ref().filter(|_| !row.job.state.is_end()) {
            self.uniques.insert((spec.tenant.clone(), unique.clone()), id);
        }
        self.jobs.insert(id, row);
    }

    /// Adds a task that was loaded.
    pub fn add_task(&mut self, task: Task) {
        self.tasks.insert((task.tenant.clone(), task.task_id.clone()), task);
    }

    /// Adds a dead letter that was loaded.
    pub fn add_letter(&mut self, letter: DeadLetter) {
        self.letters.insert(letter.id, letter);
    }

    #[cfg(feature = "postgres")]
    /// Is the dead letter part of this commit already?
    pub(crate) fn has_letter(&self, letter: DlqId) -> bool {
        self.letters.contains_key(&letter)
    }

    /// Is the job part of this commit already?
    pub fn contains(&self, job_id: JobId) -> bool {
        self.jobs.contains_key(&job_id)
    }

    /// The job as it stands now.
    pub fn job(&self, job_id: JobId) -> Option<&Job> {
        self.jobs.get(&job_id).map(|row| &*row.job)
    }

    /// All rows of this commit as they stand now, in no order.
    pub fn rows(&self) -> impl Iterator<Item = &Row<P>> {
        self.jobs.values()
    }

    #[cfg(feature = "postgres")]
    /// All rows of this commit, for a backend that learns more about what it has loaded.
    pub(crate) fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row<P>> {
        self.jobs.values_mut()
    }

    #[cfg(feature = "postgres")]
    /// Says in which incarnation of the store the commit happens.
    pub(crate) fn set_incarnation(&mut self, incarnation: u32) {
        self.incarnation = incarnation;
    }

    /// What the backend keeps beside a job of this commit.
    pub fn place_mut(&mut self, job_id: JobId) -> Option<&mut P> {
        self.jobs.get_mut(&job_id).map(|row| &mut row.place)
    }

    /// Decides an op on what there is, and keeps what it does.
    pub fn apply(&mut self, tenant: &TenantId, op: &Op, now: Timestamp) -> Result<Answer, Refusal> {
        let mine = |job: &&Job| job.spec.tenant == *tenant;
        let letter = op.dlq_id().and_then(|id| self.letters.get(&id));
        let letter = letter.filter(|letter| letter.tenant == *tenant);
        let job_id = op.job_id().or(letter.map(|letter| letter.job_id));
        let job = job_id.and_then(|id| self.job(id)).filter(mine);
        let task = self.task(tenant, op, job);
        let failed = task.filter(|_| matches!(op, Op::Enqueue(_))).and_then(|task| task.failed);
        let current = Current {
            job,
            new: op.new_job_id().and_then(|id| self.job(id)),
            by_key: self.by_key(tenant, op),
            by_unique: self.by_unique(tenant, op),
            drained_by: self.drained_by(tenant, op, job),
            parent: self.relative(tenant, op, |op| matches!(op, Op::Enqueue(_))),
            child: self.relative(tenant, op, |op| matches!(op, Op::Wait(_))),
            task,
            failed: failed.and_then(|id| self.job(id)),
            letter: letter.or(failed.and_then(|id| self.letters.get(&DlqId::of_job(id)))),
            incarnation: self.incarnation,
        };
        let transition = decide(&current, op, now)?;
        Ok(self.keep(transition))
    }

    /// Notes that what followed for another job is carried out.
    pub fn follow_up_done(&mut self, id: i64) -> Reply {
        self.changes.follow_ups_done.push(id);
        Reply::Done
    }

    /// Keeps a fact about what is not a job. It is written with the events of this commit.
    pub fn note(&mut self, note: Note) {
        self.changes.notes.push(note);
    }

    /// The other job that such an op names, if it is the same tenant's.
    fn relative(&self, tenant: &TenantId, op: &Op, such: fn(&Op) -> bool) -> Option<&Job> {
        let id = op.relative().filter(|_| such(op))?;
        self.job(id).filter(|job| job.spec.tenant == *tenant)
    }

    fn by_unique(&self, tenant: &TenantId, op: &Op) -> Option<&Job> {
        let Op::Enqueue(op) = op else { return None };
        let unique = (tenant.clone(), op.new.unique_key.clone()?);
        self.job(*self.uniques.get(&unique)?).filter(|job| !job.state.is_end())
    }

    fn by_key(&self, tenant: &TenantId, op: &Op) -> Option<&Job> {
        let Op::Enqueue(op) = op else { return None };
        if op.new.idempotency == ops::Idempotency::OwnId {
            let own =
                |job: &&Job| job.spec.tenant == *tenant && job.spec.idempotency_scope.is_own_id();
            return self.job(op.job_id).filter(own);
        }
        let id = self.keys.get(&(tenant.clone(), op.scope(), op.key()))?;
        self.job(*id)
    }

    fn task(&self, tenant: &TenantId, op: &Op, source: Option<&Job>) -> Option<&Task> {
        let task_id = match op {
            Op::Enqueue(op) => op.new.task.as_ref()?.task_id.clone(),
            Op::Requeue(_) | Op::Rerun(_) => source?.spec.task_id.clone(),
            _ => return None,
        };
        self.tasks.get(&(tenant.clone(), task_id))
    }

    fn keep(&mut self, transition: Transition) -> Answer {
        let job = transition.job;
        let (id, spec) = (job.id, job.spec.clone());
        let stats = transition.attempt.and_then(|attempt| attempt.stats);
        if transition.result.is_some() || transition.remaining.is_some() || stats.is_some() {
            let (result, remaining) = (transition.result, transition.remaining);
            let output = Output { job_id: id, attempt: job.attempt, result, remaining, stats };
            self.changes.outputs.push(output);
        }
        if let Some(progress) = transition.progress {
            self.changes.progress.insert(id, progress);
        }
        if let (Some(outcomes), Some(row)) = (&mut self.outcomes, self.jobs.get(&id)) {
            let heard = transition.events.iter().find_map(|event| Outcome::of(&row.job, event));
            outcomes.extend(heard);
        }
        if !transition.events.is_empty() {
            let is_first = self.changes.events.is_empty();
            let events = self.changes.events.entry(spec.tenant.clone()).or_default();
            if is_first {
                // Most commits are about one tenant, and events are large to move while their list grows.
                events.reserve(self.jobs.capacity());
            }
            events.extend(transition.events);
        }
        if let Some(task) = transition.task {
            self.tasks.insert((task.tenant.clone(), task.task_id.clone()), task.clone());
            self.changes.tasks.push(task);
        }
        if let Some(letter) = transition.letter {
            self.letters.insert(letter.id, letter.clone());
            self.changes.letters.insert(letter.id, letter);
        }
        self.changes.approvals.extend(transition.approval);
        self.changes.notes.extend(transition.note);
        let tenant = &spec.tenant;
        let follow_ups = transition.follow_ups.into_iter().map(|next| (tenant.clone(), next));
        self.changes.follow_ups.extend(follow_ups);
        if let Some(payload) = transition.payload {
            self.changes.created.push((id, payload));
            let place = P::default();
            self.add_row(Row { job: job.into(), place, before: None, is_new: true });
        } else if let Some(row) = self.jobs.get_mut(&id) {
            if !row.is_new && row.before.is_none() && *row.job != job {
                row.before = Some(row.job.clone());
                self.changes.updated.push(id);
            }
            // A task is free again when its job has ended. A job that named none is a task too.
            if job.state.is_end() && !self.tasks.is_empty() {
                let task = self.tasks.get_mut(&(spec.tenant.clone(), spec.task_id.clone()));
                if let Some(task) = task.filter(|task| task.active == Some(id)) {
                    task.active = None;
                    task.failed = Some(id).filter(|_| job.state == State::Failed);
                }
            }
            row.job = job.into();
        }
        transition.answer
    }

    /// The keys that callers gave to jobs of this commit.
    pub(crate) fn take_keys(&mut self) -> HashMap<Key, JobId> {
        std::mem::take(&mut self.keys)
    }

    /// What has to be saved, with the rows as they stand.
    pub fn finish(self) -> (Changes, IdMap<Row<P>>) {
        (self.changes, self.jobs)
    }
}
