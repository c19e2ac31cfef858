//! The rows of one commit, and what ops do to them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use windlass_kernel::{
    Answer, Current, DeadLetter, DlqId, Job, JobId, NewPayload, Note, Op, Refusal, Rule, State,
    Task, TenantId, Timestamp, Token, Transition, decide,
    ids::{ClaimId, StepKey},
    ledger::{Effect, Mail, MailName, Step},
    ops::{self, Footprint, Makes},
    transition::SideRow,
};

use super::{Changes, Key, Output, Reply, Unique, schedules::Schedules, table::Table};
use crate::{IdMap, rules::Outcome};

/// The rows of one commit, and what becomes of them. A backend keeps beside each what it alone knows.
#[derive(Debug, Default)]
pub struct WorkingSet<P> {
    pub(super) jobs: IdMap<Row<P>>,
    pub(super) keys: HashMap<Key, JobId>,
    pub(super) tasks: Table<Task>,
    pub(super) letters: Table<DeadLetter>,
    pub(super) uniques: HashMap<Unique, JobId>,
    pub(super) rules: Arc<Vec<Rule>>,
    /// What became of executions, if a breaker wants to hear it.
    pub(super) outcomes: Option<Vec<Outcome>>,
    pub(super) schedules: Schedules,
    pub(super) tokens: Table<Token>,
    /// Claims that were granted something.
    pub(super) claims: HashSet<ClaimId>,
    pub(super) steps: Table<Step>,
    pub(super) mails: Table<Mail>,
    pub(super) effects: Table<Effect>,
    pub(super) changes: Changes,
    pub(super) incarnation: u32,
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
        self.tasks.add(task);
    }

    /// Adds a dead letter that was loaded.
    pub fn add_letter(&mut self, letter: impl Into<Arc<DeadLetter>>) {
        self.letters.add(letter);
    }

    /// Adds a step that was loaded.
    pub(crate) fn add_step(&mut self, step: impl Into<Arc<Step>>) {
        self.steps.add(step);
    }

    /// Adds mail that was loaded.
    pub(crate) fn add_mail(&mut self, mail: impl Into<Arc<Mail>>) {
        self.mails.add(mail);
    }

    /// Adds a late effect that was loaded.
    pub(crate) fn add_effect(&mut self, effect: impl Into<Arc<Effect>>) {
        self.effects.add(effect);
    }

    #[cfg(feature = "postgres")]
    /// Is the dead letter part of this commit already?
    pub(crate) fn has_letter(&self, letter: DlqId) -> bool {
        self.letters.get(&letter).is_some()
    }

    /// Is the job part of this commit already?
    pub fn contains(&self, job_id: JobId) -> bool {
        self.jobs.contains_key(&job_id)
    }

    /// The job as it stands now.
    pub fn job(&self, job_id: JobId) -> Option<&Job> {
        self.jobs.get(&job_id).map(|row| &*row.job)
    }

    /// The job as it stands now, to be kept.
    pub(crate) fn shared(&self, job_id: JobId) -> Option<Arc<Job>> {
        self.jobs.get(&job_id).map(|row| row.job.clone())
    }

    /// The payload of a job that this commit makes.
    pub(crate) fn new_payload(&self, job_id: JobId) -> Option<&NewPayload> {
        self.changes.new_payload(job_id)
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
        let Footprint { job, letter, relative, makes, ledger, .. } = op.footprint();
        let mine = |job: &&Job| job.spec.tenant == *tenant;
        let letter = letter.and_then(|id| self.letters.get(&id));
        let letter = letter.filter(|letter| letter.tenant == *tenant);
        let job_id = job.or(letter.map(|letter| letter.job_id));
        let job = job_id.and_then(|id| self.job(id)).filter(mine);
        let new = match makes {
            Makes::New(op) => Some(op),
            Makes::Nothing | Makes::Again { .. } => None,
        };
        let relative = relative.and_then(|id| self.job(id)).filter(mine);
        let task = self.task(tenant, makes, job);
        let failed = task.filter(|_| new.is_some()).and_then(|task| task.failed);
        let step = |key: &StepKey| self.steps.get(&(job_id?, key.clone()));
        let steps: Vec<&Step> = ledger.steps().into_iter().filter_map(step).collect();
        let mail = |name: &MailName| self.mails.get(&(job_id?, name.clone()));
        let mails: Vec<&Mail> = ledger.mails().iter().filter_map(mail).collect();
        let effect = |key: &StepKey| self.effects.get(&(job_id?, key.clone()));
        let current = Current {
            steps: &steps,
            mails: &mails,
            effect: ledger.effect().and_then(effect),
            job,
            new: makes.id().and_then(|id| self.job(id)),
            by_key: new.and_then(|op| self.by_key(tenant, op)),
            by_unique: new.and_then(|op| self.by_unique(tenant, op)),
            drained_by: self.drained_by(tenant, makes, job),
            parent: relative.filter(|_| new.is_some()),
            child: relative.filter(|_| new.is_none()),
            task,
            failed: failed.and_then(|id| self.job(id)),
            letter: letter.or(failed.and_then(|id| self.letters.get(&DlqId::of_job(id)))),
            incarnation: self.incarnation,
        };
        let transition = decide(&current, op, now)?;
        Ok(self.keep(transition))
    }

    /// An answer, with the job that it is about.
    pub(crate) fn reply(&self, answer: Answer) -> Reply {
        let job = self.jobs.get(&answer.job_id).map(|row| row.job.clone());
        Reply::Answer(answer, job)
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

    fn by_unique(&self, tenant: &TenantId, op: &ops::Enqueue) -> Option<&Job> {
        let unique = (tenant.clone(), op.new.unique_key.clone()?);
        self.job(*self.uniques.get(&unique)?).filter(|job| !job.state.is_end())
    }

    fn by_key(&self, tenant: &TenantId, op: &ops::Enqueue) -> Option<&Job> {
        if op.new.idempotency == ops::Idempotency::OwnId {
            let own =
                |job: &&Job| job.spec.tenant == *tenant && job.spec.idempotency_scope.is_own_id();
            return self.job(op.job_id).filter(own);
        }
        let id = self.keys.get(&(tenant.clone(), op.scope(), op.key()))?;
        self.job(*id)
    }

    fn task(&self, tenant: &TenantId, makes: Makes<'_>, source: Option<&Job>) -> Option<&Task> {
        let task_id = match makes {
            Makes::Nothing => return None,
            Makes::New(op) => op.new.task.as_ref()?.task_id.clone(),
            Makes::Again { .. } => source?.spec.task_id.clone(),
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
            self.tasks.put(task);
        }
        if let Some(letter) = transition.letter {
            self.letters.put(letter);
        }
        for row in transition.rows {
            match row {
                SideRow::Step(step) => self.steps.put(step),
                SideRow::Mail(mail) => self.mails.put(mail),
                SideRow::Effect(effect) => self.effects.put(effect),
            }
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
                self.tasks.see(&(spec.tenant.clone(), spec.task_id.clone()), |task| {
                    if task.active == Some(id) {
                        task.active = None;
                        task.failed = Some(id).filter(|_| job.state == State::Failed);
                    }
                });
            }
            row.job = job.into();
        }
        transition.answer
    }

    /// The keys that callers gave to jobs of this commit.
    pub(crate) fn take_keys(&mut self) -> HashMap<Key, JobId> {
        std::mem::take(&mut self.keys)
    }

    /// The unique keys of jobs of this commit that were not at their end.
    pub(crate) fn take_uniques(&mut self) -> HashMap<Unique, JobId> {
        std::mem::take(&mut self.uniques)
    }

    /// What has to be saved, with the rows as they stand.
    pub fn finish(self) -> (Changes, IdMap<Row<P>>) {
        let Self { jobs, tasks, letters, schedules, tokens, mut changes, .. } = self;
        changes.steps = self.steps.into_puts();
        changes.mails = self.mails.into_puts();
        changes.effects = self.effects.into_puts();
        changes.tasks = tasks.into_puts();
        changes.letters = letters.into_puts();
        changes.schedules = schedules.rows.into_puts();
        changes.tokens = tokens.into_puts();
        (changes, jobs)
    }
}
