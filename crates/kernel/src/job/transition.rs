//! What an op does, as a value: the next row, the events, the rows beside it, and the answer.
//!
//! Always true: the next row is the fold of the events over the row before (lease aside), because a
//! `Draft` changes a job only by recording an event, and the machine has to know the move.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Approval, By, Cause, DeadLetter, DlqId, Epoch, Event, Fact, Failure, Job, JobId, Note, OpKind,
    Payload, Refusal, State, Task, TaskId, TenantId, Timestamp,
    evolve::{change, evolve},
    job::Lease,
    ledger::{Effect, Mail, Step, StepAnswer},
    machine::{self, words},
};

/// What an op does. The caller saves all of it in one transaction, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The job as it is afterwards.
    pub job: Job,
    /// What happened, in order. Empty if nothing did, or only a lease was renewed.
    pub events: Vec<Event>,
    /// The payload of a new job.
    pub payload: Option<NewPayload>,
    /// The result that a handler gave.
    pub result: Option<Payload>,
    /// What a handler says is left to do.
    pub remaining: Option<Payload>,
    /// How far a handler says it has come.
    pub progress: Option<Progress>,
    /// The attempt as it is afterwards, if it changed.
    pub attempt: Option<Attempt>,
    /// The dead letter as it is afterwards, if it changed.
    pub letter: Option<DeadLetter>,
    /// A person's say on a dead letter.
    pub approval: Option<Approval>,
    /// What is told of a dead letter. The history of its job does not: that has come to its end.
    pub note: Option<Note>,
    /// The task as it is afterwards, if it changed and has a row.
    pub task: Option<Task>,
    /// Rows of its ledger as they are afterwards.
    pub rows: Vec<SideRow>,
    /// What follows for other jobs.
    pub follow_ups: Vec<FollowUp>,
    /// What the caller is told.
    pub answer: Answer,
}

/// A row beside a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SideRow {
    /// A step.
    Step(Step),
    /// Mail that came.
    Mail(Mail),
    /// A late effect.
    Effect(Effect),
}

impl Transition {
    /// Nothing happens, and the caller is told what was recorded before.
    pub(crate) fn recorded(job: &Job) -> Self {
        let answer = Answer { recorded: true, ..Answer::of(job) };
        Self { answer, ..Self::unchanged(job) }
    }

    /// The job stays as it is.
    pub(crate) fn unchanged(job: &Job) -> Self {
        Self::to(job.clone())
    }

    /// There is this job, and nothing else is said.
    pub(crate) fn to(job: Job) -> Self {
        Self {
            answer: Answer::of(&job),
            job,
            events: Vec::new(),
            payload: None,
            result: None,
            remaining: None,
            progress: None,
            attempt: None,
            letter: None,
            approval: None,
            note: None,
            task: None,
            rows: Vec::new(),
            follow_ups: Vec::new(),
        }
    }
}

/// What the caller of an op is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The job.
    pub job_id: JobId,
    /// Where it went.
    pub state: State,
    /// Was it answered from the record? Then nothing was done now.
    pub recorded: bool,
    /// The last epoch granted.
    pub epoch: Epoch,
    /// When the lease runs out, if there is one.
    pub leased_until: Option<Timestamp>,
    /// When its retry is due, if one is.
    pub next_retry_at: Option<Timestamp>,
    /// Its dead letter, if it has one.
    pub dlq_id: Option<DlqId>,
    /// Should the handler clean up and settle the job as cancelled?
    pub cancel_requested: bool,
    /// What is said of each entry, if the ledger was advanced.
    pub steps: Vec<StepAnswer>,
    /// Did the job wait for the signal that came?
    pub delivered: bool,
}

impl Answer {
    pub(crate) fn of(job: &Job) -> Self {
        Self {
            job_id: job.id,
            state: job.state,
            recorded: false,
            epoch: job.epoch,
            leased_until: job.lease.as_ref().map(|lease| lease.until),
            next_retry_at: job.next_retry_at,
            dlq_id: job.dlq_id,
            cancel_requested: job.cancel.is_some() && !job.state.is_end(),
            steps: Vec::new(),
            delivered: false,
        }
    }
}

/// The payload of a new job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewPayload {
    /// It came with the op.
    Given(Payload),
    /// It is the same as another job's.
    Of(JobId),
}

/// How far a handler says it has come. There is one for each job: the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The epoch that said it.
    pub epoch: Epoch,
    /// When it was said.
    pub at: Timestamp,
    /// What was said.
    pub value: Payload,
}

/// What follows for another job. It is carried out later as an op with the same outcome each time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FollowUp {
    /// A child came to its end: wake the parent, if it waits for that.
    ChildEnded {
        /// The job to tell.
        parent: JobId,
        /// The child.
        child: JobId,
        /// How it ended.
        state: State,
    },
    /// A job is to be cancelled: cancel its children.
    CancelChildren {
        /// The job whose children are meant.
        parent: JobId,
    },
}

/// One attempt of a task: the row that contract `ingest` calls a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The job that makes it.
    pub job_id: JobId,
    /// Who it belongs to.
    pub tenant: TenantId,
    /// What it is an attempt of.
    pub task_id: TaskId,
    /// Which one it is, from 1.
    pub attempt: u32,
    /// Where it stands.
    pub state: AttemptState,
    /// The last epoch that worked on it.
    pub epoch: Epoch,
    /// When it first started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// How it failed.
    pub failure: Option<Failure>,
    /// Figures that the handler gave.
    pub stats: Option<Payload>,
}

words!(
    /// Where an attempt stands.
    AttemptState {
        /// Claimed, not started.
        Planned = "PLANNED",
        /// Started. It stays so while the job waits, is interrupted or is resumed.
        Running = "RUNNING",
        /// It succeeded.
        Succeeded = "SUCCEEDED",
        /// It did a part.
        Partial = "PARTIAL",
        /// It failed, whether or not a retry follows.
        Failed = "FAILED",
        /// It was cancelled.
        Cancelled = "CANCELLED",
    }
);

impl AttemptState {
    /// Where the current attempt of `job` stands; none before the first claim.
    pub fn of(job: &Job) -> Option<AttemptState> {
        if job.epoch == Epoch::ZERO {
            return None;
        }
        Some(match job.state {
            State::Succeeded => AttemptState::Succeeded,
            State::Partial => AttemptState::Partial,
            State::Failed | State::RetryScheduled => AttemptState::Failed,
            State::Cancelled => AttemptState::Cancelled,
            _ if job.attempt_started_at.is_some() => AttemptState::Running,
            _ => AttemptState::Planned,
        })
    }
}

/// A transition in the making.
pub(crate) struct Draft<'a> {
    op: OpKind,
    by: &'a By,
    now: Timestamp,
    before: &'a Job,
    transition: Transition,
}

impl<'a> Draft<'a> {
    /// A draft of what `op` does to `job`.
    pub(crate) fn of(job: &'a Job, op: OpKind, by: &'a By, now: Timestamp) -> Self {
        Self { op, by, now, before: job, transition: Transition::unchanged(job) }
    }

    /// Records what happened and moves the job as the machine says, or refuses.
    pub(crate) fn record(&mut self, cause: Cause, fact: Fact) -> Result<(), Refusal> {
        let job = &self.transition.job;
        let to = machine::target(Some(job.state), cause)
            .ok_or(Refusal::InvalidTransition { from: job.state, op: self.op })?;
        let mut event = Event {
            job_id: job.id,
            number: job.version + 1,
            at: self.now,
            cause,
            from: Some(job.state),
            to,
            attempt: job.attempt,
            retry_count: job.retry_count,
            epoch: job.epoch,
            started: job.has_started(),
            actor: self.by.actor.clone(),
            trace_id: self.by.trace_id.clone(),
            fact,
        };
        let job = &mut self.transition.job;
        change(job, &event);
        (event.attempt, event.retry_count, event.epoch) = (job.attempt, job.retry_count, job.epoch);
        self.transition.events.push(event);
        Ok(())
    }

    /// The job as it stands in the draft.
    pub(crate) fn job(&self) -> &Job {
        &self.transition.job
    }

    /// The transition, to add what is not history.
    pub(crate) fn transition(&mut self) -> &mut Transition {
        &mut self.transition
    }

    /// Gives the job a lease, and counts it.
    pub(crate) fn grant(&mut self, lease: Lease) {
        self.transition.job.lease = Some(lease);
        self.transition.job.lease_count += 1;
    }

    /// Completes the transition: the rows beside the job, what follows for others, the answer.
    pub(crate) fn finish(self, stats: Option<Payload>) -> Transition {
        let Draft { before, mut transition, now, .. } = self;
        let job = &transition.job;
        transition.attempt = changed_attempt(before, job, stats, now);
        if job.attempt > before.attempt && job.spec.task_given {
            transition.task = Some(task_of(job));
        }
        let unwanted = |job: &Job| job.cancel.is_some() || job.state == State::Cancelled;
        if unwanted(job) && !unwanted(before) {
            transition.follow_ups.push(FollowUp::CancelChildren { parent: job.id });
        }
        if let (Some(parent), true) = (job.spec.parent, job.state.is_end()) {
            let ended = FollowUp::ChildEnded { parent, child: job.id, state: job.state };
            transition.follow_ups.push(ended);
        }
        transition.answer = Answer::of(job);
        transition
    }
}

/// The task of a job, as its row stands with this job active.
pub(crate) fn task_of(job: &Job) -> Task {
    Task {
        tenant: job.spec.tenant.clone(),
        task_id: job.spec.task_id.clone(),
        next_attempt: job.attempt + 1,
        active: Some(job.id),
        failed: None,
    }
}

/// The attempts that a history tells of, in order. Figures of handlers are not part of it.
pub fn attempts<'a>(events: impl IntoIterator<Item = &'a Event>) -> Vec<Attempt> {
    let mut found: Vec<Attempt> = Vec::new();
    let mut job: Option<Job> = None;
    for event in events {
        let before = job.take();
        let after = evolve(before.clone(), event);
        let changed = before.and_then(|before| changed_attempt(&before, &after, None, event.at));
        if let Some(changed) = changed {
            found.retain(|attempt| attempt.attempt != changed.attempt);
            found.push(changed);
        }
        job = Some(after);
    }
    found
}

/// The current attempt, if the transition changed it.
fn changed_attempt(
    before: &Job,
    after: &Job,
    stats: Option<Payload>,
    now: Timestamp,
) -> Option<Attempt> {
    let state = AttemptState::of(after)?;
    // The attempt of a job that waits for its retry has failed; a cancel does not change that.
    let settled_before = before.state == State::RetryScheduled && before.attempt == after.attempt;
    let same = AttemptState::of(before) == Some(state)
        && (before.attempt, before.epoch) == (after.attempt, after.epoch);
    if settled_before || same {
        return None;
    }
    let ended = !matches!(state, AttemptState::Planned | AttemptState::Running);
    Some(Attempt {
        job_id: after.id,
        tenant: after.spec.tenant.clone(),
        task_id: after.spec.task_id.clone(),
        attempt: after.attempt,
        state,
        epoch: after.epoch,
        started_at: after.attempt_started_at,
        finished_at: ended.then_some(now),
        failure: after.error.clone().filter(|_| state == AttemptState::Failed),
        stats,
    })
}
