//! What has to be loaded before a commit can be decided.

use std::collections::BTreeSet;

use windlass_kernel::{
    DlqId, IdempotencyKey, IdempotencyScope, JobId, TaskId, TenantId, TokenId, TokenOp, UniqueKey,
    ids::StepKey,
    ledger::MailName,
    ops::{Footprint, Idempotency, Makes},
    schedule::Action,
};

use super::{ScheduleKey, Write};
use crate::IdSet;

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
    pub uniques: BTreeSet<Unique>,
    /// Schedules by name, and whether their last jobs are at their end.
    pub schedules: BTreeSet<ScheduleKey>,
    /// Tokens by id.
    pub tokens: BTreeSet<TokenId>,
    /// All tokens of admins that are not revoked.
    pub admins: bool,
    /// Steps of ledgers.
    pub steps: BTreeSet<(JobId, StepKey)>,
    /// Mail for jobs.
    pub mails: BTreeSet<(JobId, MailName)>,
    /// What was handed in late of steps.
    pub effects: BTreeSet<(JobId, StepKey)>,
}

/// Where a unique key stands.
pub type Unique = (TenantId, UniqueKey);

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
            let Footprint { job, letter, relative, makes, ledger, .. } = op.footprint();
            needs.jobs.extend(job);
            if let Some(job) = job {
                needs.steps.extend(ledger.steps().into_iter().map(|key| (job, key.clone())));
                needs.mails.extend(ledger.mails().into_iter().map(|name| (job, name)));
                needs.effects.extend(ledger.effect().map(|key| (job, key.clone())));
            }
            // An enqueue names the same job twice.
            needs.jobs.extend(makes.id().filter(|new| job != Some(*new)));
            needs.jobs.extend(relative);
            needs.letters.extend(letter);
            // The job of a letter comes with the other jobs, so that jobs are locked before letters by every op.
            needs.jobs.extend(letter.map(DlqId::job_id));
            match makes {
                Makes::Nothing => {}
                Makes::New(op) => {
                    // The key of an enqueue without one is its job id, which is looked up anyway.
                    if op.new.idempotency != Idempotency::OwnId {
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
                // The task of a letter comes with the letter.
                Makes::Again { .. } => needs.tasks_of.extend(job),
            }
        }
        needs
    }

    /// Is it more than jobs, by their ids or by their keys?
    #[cfg(feature = "postgres")]
    pub(crate) fn more_than_jobs(&self) -> bool {
        !(self.tasks.is_empty()
            && self.letters.is_empty()
            && self.tasks_of.is_empty()
            && self.uniques.is_empty()
            && self.schedules.is_empty()
            && self.tokens.is_empty()
            && self.steps.is_empty()
            && self.mails.is_empty())
    }
}
