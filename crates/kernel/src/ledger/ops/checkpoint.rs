//! Checkpoint: a handler saves its state, and what came before it is not replayed any more.
//!
//! Progress clears the count of interruptions: a job that gets on is no poison. A state that is not kept here, because the
//! handler keeps it elsewhere, only counts as progress.

use crate::{
    By, Cause, Digest, Epoch, Fact, Job, JobId, OpKind, Payload, Refusal, Timestamp, Transition,
    footprint::{Footprint, size},
    ids::StepKey,
    ledger::{Record, RecordedBy, Shape, Step, StepOp, StepOutcome},
    ops::fence,
    transition::{Draft, SideRow},
};

/// A handler saves its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The job.
    pub job_id: JobId,
    /// The epoch of the lease.
    pub epoch: Epoch,
    /// Who: the worker session.
    pub by: By,
    /// The digest of the saved state.
    pub state: Digest,
    /// The state itself, with what the handler's steps are counted by, if it is kept in the ledger.
    pub kept: Option<Payload>,
}

impl Checkpoint {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_lease(self.job_id).carrying(size(self.kept.as_ref()))
    }
}

pub(crate) fn decide(job: &Job, op: &Checkpoint, now: Timestamp) -> Result<Transition, Refusal> {
    let by = fence(job, op.epoch, &op.by, OpKind::Checkpoint)?;
    let mut draft = Draft::of(job, OpKind::Checkpoint, &by, now);
    let Some(kept) = &op.kept else {
        draft.record(Cause::Checkpoint, Fact::Checkpoint { state: op.state, kept: None })?;
        return Ok(draft.finish(None));
    };
    job.ledger.check_room()?;
    let bytes = kept.as_str().len();
    job.ledger.check_bytes(bytes)?;
    let kept_bytes = Some(bytes as u64);
    draft.record(Cause::Checkpoint, Fact::Checkpoint { state: op.state, kept: kept_bytes })?;
    let number = draft.job().ledger.recorded;
    let record = Record {
        number,
        attempt: job.attempt,
        at: now,
        outcome: StepOutcome::Done(kept.clone()),
        by: RecordedBy::Executed,
    };
    let step = Step {
        job_id: job.id,
        key: StepKey::of_op(StepOp::Checkpoint, "", number)?,
        shape: Shape::of(StepOp::Checkpoint),
        epoch: job.epoch,
        call_id: 0,
        begun_at: now,
        until: None,
        location: None,
        tries: 0,
        failure: None,
        next_try_at: None,
        not_done: false,
        record: Some(record),
    };
    draft.transition().rows.push(SideRow::Step(step));
    Ok(draft.finish(None))
}
