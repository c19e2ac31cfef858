//! Effect: a worker hands in what came of a step, also after it has lost its lease.
//!
//! It is a fact and changes no job: no state moves and no event is written. The attempt that lives now finds it behind the
//! barrier and takes it into the record. Accepted only of the epoch that began the step, while nobody has recorded anything.

use crate::{
    By, Epoch, Job, JobId, OpKind, Refusal, Timestamp, Transition,
    footprint::{Footprint, LedgerRows},
    ids::StepKey,
    ledger::{Effect, StepOutcome},
    ops::Current,
    transition::SideRow,
};

/// A worker hands in what came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandIn {
    /// The job.
    pub job_id: JobId,
    /// The step.
    pub key: StepKey,
    /// The epoch that began it.
    pub epoch: Epoch,
    /// What came of it.
    pub outcome: StepOutcome,
    /// Who: the worker session.
    pub by: By,
}

impl HandIn {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let ledger = LedgerRows::Effect(&self.key);
        Footprint { ledger, ..Footprint::of_lease(self.job_id) }.carrying(self.outcome.bytes())
    }
}

pub(crate) fn decide(
    job: &Job,
    current: &Current<'_>,
    op: &HandIn,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let step = current.steps.iter().find(|step| step.key == op.key);
    let step = step.ok_or(Refusal::NotFound { what: "step" })?;
    let digest = op.outcome.digest();
    if let Some(record) = &step.record {
        return match record.outcome.digest() == digest {
            true => Ok(Transition::recorded(job)),
            false => Err(Refusal::StepRecorded { key: op.key.clone() }),
        };
    }
    if let Some(known) = current.effect {
        return match known.outcome.digest() == digest {
            true => Ok(Transition::recorded(job)),
            false => Err(Refusal::StepRecorded { key: op.key.clone() }),
        };
    }
    if job.state.is_end() {
        return Err(Refusal::InvalidTransition { from: job.state, op: OpKind::HandIn });
    }
    if step.epoch != op.epoch || step.not_done {
        return Err(Refusal::StaleAttempt);
    }
    job.ledger.check_bytes(op.outcome.bytes())?;
    let effect = Effect {
        job_id: job.id,
        key: op.key.clone(),
        epoch: op.epoch,
        at: now,
        outcome: op.outcome.clone(),
    };
    let mut transition = Transition::unchanged(job);
    transition.rows.push(SideRow::Effect(effect));
    Ok(transition)
}
