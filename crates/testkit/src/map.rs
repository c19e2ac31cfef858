//! A store in a map: the pure kernel with nothing under it.
//!
//! It loads what an op needs, asks the kernel, and keeps what the kernel says. It knows no rule.

use std::collections::BTreeMap;

use windlass_kernel::{
    Answer, Approval, Attempt, Current, DeadLetter, DlqId, Event, FollowUp, Job, JobId, NewPayload,
    Op, Payload, Progress, Refusal, State, Task, TaskId, TenantId, Timestamp, decide,
    ids::StepKey,
    ledger::{Effect, Mail, MailName, Step},
    transition::SideRow,
};

/// Everything a store holds, in memory.
#[derive(Clone, Debug, Default)]
pub struct MapStore {
    /// Jobs by id.
    pub jobs: BTreeMap<JobId, Job>,
    /// Payloads by job.
    pub payloads: BTreeMap<JobId, Payload>,
    /// What handlers gave back, by job and attempt: the result, and what is left to do.
    pub outputs: BTreeMap<(JobId, u32), (Option<Payload>, Option<Payload>)>,
    /// How far handlers said they had come, by job.
    pub progress: BTreeMap<JobId, Progress>,
    /// All events, in the order of the store.
    pub events: Vec<Event>,
    /// Attempts by task and number.
    pub attempts: BTreeMap<(TenantId, TaskId, u32), Attempt>,
    /// Dead letters by id.
    pub letters: BTreeMap<DlqId, DeadLetter>,
    /// What people said about dead letters, in order.
    pub approvals: Vec<Approval>,
    /// The next attempt of each task that was named.
    pub tasks: BTreeMap<(TenantId, TaskId), u32>,
    /// Steps by job and key.
    pub steps: BTreeMap<(JobId, StepKey), Step>,
    /// Mail by job and name.
    pub mails: BTreeMap<(JobId, MailName), Mail>,
    /// What was handed in late, by job and step.
    pub effects: BTreeMap<(JobId, StepKey), Effect>,
    /// What follows for other jobs, in order. Nobody carries it out here.
    pub follow_ups: Vec<FollowUp>,
    /// The incarnation of the store.
    pub incarnation: u32,
}

impl MapStore {
    /// Applies one op, whole or not at all.
    pub fn commit(&mut self, op: &Op, now: Timestamp) -> Result<Answer, Refusal> {
        let letter = op.dlq_id().and_then(|id| self.letters.get(&id));
        let job_id = op.job_id().or(letter.map(|letter| letter.job_id));
        let job = job_id.and_then(|id| self.jobs.get(&id));
        let task = self.task(op, job);
        let failed = task.as_ref().filter(|_| matches!(op, Op::Enqueue(_)));
        let failed = failed.and_then(|task| task.failed);
        let rows = op.footprint().ledger;
        let step = |key: &StepKey| self.steps.get(&(job_id?, key.clone()));
        let steps: Vec<&Step> = rows.steps().into_iter().filter_map(step).collect();
        let mail = |name: &MailName| self.mails.get(&(job_id?, name.clone()));
        let mails: Vec<&Mail> = rows.mails().iter().filter_map(mail).collect();
        let effect = |key: &StepKey| self.effects.get(&(job_id?, key.clone()));
        let effect = rows.effect().and_then(effect);
        let current = Current {
            steps: &steps,
            mails: &mails,
            effect,
            job,
            new: op.new_job_id().and_then(|id| self.jobs.get(&id)),
            by_key: self.by_key(op),
            by_unique: self.by_unique(op),
            drained_by: None,
            parent: self.relative(op, |op| matches!(op, Op::Enqueue(_))),
            child: self.relative(op, |op| matches!(op, Op::Wait(_))),
            task: task.as_ref(),
            failed: failed.and_then(|id| self.jobs.get(&id)),
            letter: letter.or(failed.and_then(|id| self.letters.get(&DlqId::of_job(id)))),
            incarnation: self.incarnation,
        };
        let transition = decide(&current, op, now)?;

        let job = transition.job;
        match transition.payload {
            Some(NewPayload::Given(payload)) => {
                self.payloads.insert(job.id, payload);
            }
            Some(NewPayload::Of(other)) => {
                let payload = self.payloads[&other].clone();
                self.payloads.insert(job.id, payload);
            }
            None => {}
        }
        if transition.result.is_some() || transition.remaining.is_some() {
            let output = (transition.result, transition.remaining);
            self.outputs.insert((job.id, job.attempt), output);
        }
        if let Some(progress) = transition.progress {
            self.progress.insert(job.id, progress);
        }
        if let Some(attempt) = transition.attempt {
            let key = (attempt.tenant.clone(), attempt.task_id.clone(), attempt.attempt);
            self.attempts.insert(key, attempt);
        }
        if let Some(letter) = transition.letter {
            self.letters.insert(letter.id, letter);
        }
        if let Some(task) = transition.task {
            self.tasks.insert((task.tenant, task.task_id), task.next_attempt);
        }
        for row in transition.rows {
            match row {
                SideRow::Step(step) => {
                    self.steps.insert((step.job_id, step.key.clone()), step);
                }
                SideRow::Mail(mail) => {
                    self.mails.insert((mail.job_id, mail.name.clone()), mail);
                }
                SideRow::Effect(effect) => {
                    self.effects.insert((effect.job_id, effect.key.clone()), effect);
                }
            }
        }
        self.approvals.extend(transition.approval);
        self.events.extend(transition.events);
        self.follow_ups.extend(transition.follow_ups);
        self.jobs.insert(job.id, job);
        Ok(transition.answer)
    }

    /// The events of one job, in order.
    pub fn events_of(&self, job_id: JobId) -> Vec<&Event> {
        self.events.iter().filter(|event| event.job_id == job_id).collect()
    }

    /// The other job that such an op names.
    fn relative(&self, op: &Op, such: fn(&Op) -> bool) -> Option<&Job> {
        op.footprint().relative.filter(|_| such(op)).and_then(|id| self.jobs.get(&id))
    }

    fn by_unique(&self, op: &Op) -> Option<&Job> {
        let Op::Enqueue(op) = op else { return None };
        let unique = op.new.unique_key.as_ref()?;
        self.jobs.values().find(|job| {
            let spec = &job.spec;
            spec.tenant == op.tenant
                && spec.unique_key.as_ref() == Some(unique)
                && !job.state.is_end()
        })
    }

    fn by_key(&self, op: &Op) -> Option<&Job> {
        let Op::Enqueue(op) = op else { return None };
        let (scope, key) = (op.scope(), op.key());
        self.jobs.values().find(|job| {
            let spec = &job.spec;
            spec.tenant == op.tenant
                && spec.idempotency_scope == scope
                && spec.idempotency_key == key
        })
    }

    /// The task that the new job of `op` runs, if it is known.
    fn task(&self, op: &Op, source: Option<&Job>) -> Option<Task> {
        let (tenant, task_id) = match op {
            Op::Enqueue(op) => (op.tenant.clone(), op.new.task.as_ref()?.task_id.clone()),
            Op::Requeue(_) | Op::Rerun(_) => {
                let spec = &source?.spec;
                (spec.tenant.clone(), spec.task_id.clone())
            }
            _ => return None,
        };
        let jobs: Vec<&Job> = self
            .jobs
            .values()
            .filter(|job| job.spec.tenant == tenant && job.spec.task_id == task_id)
            .collect();
        // A job that named no task has no task row, and its own id may still be named as a task.
        let by_jobs = jobs.iter().map(|job| job.attempt + 1).max();
        let by_row = self.tasks.get(&(tenant.clone(), task_id.clone())).copied();
        let next_attempt = by_jobs.max(by_row)?;
        let active = jobs.iter().find(|job| !job.state.is_end()).map(|job| job.id);
        let last = jobs.iter().find(|job| job.attempt + 1 == next_attempt);
        let failed = last.filter(|job| job.state == State::Failed).map(|job| job.id);
        Some(Task { tenant, task_id, next_attempt, active, failed })
    }
}
