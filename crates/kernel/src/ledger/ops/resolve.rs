//! Resolve: a person states what became of a step whose effect is unknown, or lets a parked job go on.
//!
//! Only a job that waits for an operator can be resolved. The statement is a record like any other, with the person and the
//! reason in the history, and the job goes on from there.

use crate::{
    By, Cause, Fact, Job, JobId, OpKind, Refusal, Timestamp, Transition,
    footprint::{Footprint, LedgerRows},
    ids::StepKey,
    job::{WaitOn, Wakeup},
    ledger::{Record, RecordedBy, StepOutcome, ops::advance::note_recorded},
    ops::{Current, needed_reason},
    transition::{Draft, SideRow},
};

/// A person states what became of a step, and the job goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolve {
    /// The job.
    pub job_id: JobId,
    /// What became of the step that it waits for; nothing is stated of a job that only has to go on.
    pub statement: Option<Statement>,
    /// Why, in their words.
    pub reason: String,
    /// Who.
    pub by: By,
}

/// What a person states of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The step.
    pub key: StepKey,
    /// What became of it.
    pub what: Stated,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stated {
    /// It happened, and this is its result; or it failed for good.
    Happened(StepOutcome),
    /// Nothing happened: it may run again.
    NotDone,
}

impl Resolve {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let ledger = match &self.statement {
            Some(statement) => LedgerRows::Effect(&statement.key),
            None => LedgerRows::Nothing,
        };
        let bytes = match self.statement.as_ref().map(|statement| &statement.what) {
            Some(Stated::Happened(outcome)) => outcome.bytes(),
            Some(Stated::NotDone) | None => 0,
        };
        Footprint { ledger, ..Footprint::of_job(self.job_id) }.carrying(bytes + self.reason.len())
    }
}

pub(crate) fn decide(
    job: &Job,
    current: &Current<'_>,
    op: &Resolve,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    needed_reason(&op.reason)?;
    let Some(wait) = &job.wait else {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::Resolve });
    };
    let WaitOn::Operator { step: awaited, .. } = &wait.on else {
        return Err(Refusal::NotWaitingFor);
    };
    let stated = op.statement.as_ref().map(|statement| &statement.key);
    if awaited.as_ref() != stated {
        return Err(match awaited {
            Some(key) => Refusal::invalid("step", format!("must be {key}, which the job asks for")),
            None => Refusal::invalid("step", "is not asked for: the job only has to go on"),
        });
    }
    let mut draft = Draft::of(job, OpKind::Resolve, &op.by, now);
    if let Some(Statement { key, what }) = &op.statement {
        let step = current.steps.iter().find(|step| step.key == *key);
        let mut step = (*step.ok_or(Refusal::NotFound { what: "step" })?).clone();
        if step.counts_in(job.attempt) {
            return Err(Refusal::StepRecorded { key: key.clone() });
        }
        match what {
            Stated::Happened(outcome) => {
                job.ledger.check_bytes(outcome.bytes())?;
                if let StepOutcome::Failed(failure) = outcome {
                    failure.bounded()?;
                }
                let by = RecordedBy::Stated;
                note_recorded(&mut draft, key, step.shape.op, outcome, by, false)?;
                let number = draft.job().ledger.recorded;
                let (attempt, outcome) = (job.attempt, outcome.clone());
                step.record = Some(Record { number, attempt, at: now, outcome, by });
            }
            Stated::NotDone => step.not_done = true,
        }
        draft.transition().rows.push(SideRow::Step(step));
    }
    let fact = Fact::Resolved {
        step: stated.cloned(),
        not_done: matches!(
            op.statement.as_ref().map(|statement| &statement.what),
            Some(Stated::NotDone)
        ),
        reason: op.reason.clone(),
    };
    draft.record(Cause::StepResolved, fact)?;
    draft.record(Cause::WaitCompleted, Fact::Woken { how: Wakeup::Operator, payload: None })?;
    Ok(draft.finish(None))
}
