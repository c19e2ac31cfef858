//! What a commit has to save.

use std::collections::BTreeMap;

use windlass_kernel::{
    Approval, DeadLetter, Event, FollowUp, JobId, MarkName, NewPayload, Note, Payload, Progress,
    RuleName, Schedule, Task, TenantId, Token,
    ids::ClaimId,
    ledger::{Effect, Mail, Step},
    rule::{Part, RuleState},
};

use super::Puts;
use crate::rules::RuleChange;

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
    /// What becomes of dead letters.
    pub letters: Puts<DeadLetter>,
    /// What people said about them.
    pub approvals: Vec<Approval>,
    /// The next attempts of tasks.
    pub tasks: Puts<Task>,
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
    pub schedules: Puts<Schedule>,
    /// What becomes of tokens.
    pub tokens: Puts<Token>,
    /// How far followers of the feed have come.
    pub marks: BTreeMap<MarkName, u64>,
    /// Claims that were granted something for the first time.
    pub claims: Vec<ClaimId>,
    /// What becomes of steps.
    pub steps: Puts<Step>,
    /// Mail that came.
    pub mails: Puts<Mail>,
    /// What was handed in late.
    pub effects: Puts<Effect>,
}

impl Changes {
    /// Is there nothing to save?
    pub(crate) fn is_empty(&self) -> bool {
        self.created.is_empty()
            && self.updated.is_empty()
            && self.events.is_empty()
            && self.has_only_jobs()
    }

    /// Is there nothing to save but jobs and their events?
    pub(crate) fn has_only_jobs(&self) -> bool {
        let Changes {
            created: _,
            updated: _,
            events: _,
            outputs,
            progress,
            letters,
            approvals,
            tasks,
            follow_ups,
            follow_ups_done,
            rules,
            rule_states,
            notes,
            schedules,
            tokens,
            marks,
            claims,
            steps,
            mails,
            effects,
        } = self;
        outputs.is_empty()
            && progress.is_empty()
            && letters.is_empty()
            && approvals.is_empty()
            && tasks.is_empty()
            && follow_ups.is_empty()
            && follow_ups_done.is_empty()
            && rules.is_empty()
            && rule_states.is_empty()
            && notes.is_empty()
            && schedules.is_empty()
            && tokens.is_empty()
            && marks.is_empty()
            && claims.is_empty()
            && steps.is_empty()
            && mails.is_empty()
            && effects.is_empty()
    }

    /// The payload of a job that is made.
    pub(crate) fn new_payload(&self, job_id: JobId) -> Option<&NewPayload> {
        self.created.iter().find(|(id, _)| *id == job_id).map(|(_, payload)| payload)
    }
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
