//! Bury: a job is given up and becomes a dead letter.
//!
//! One transaction, three events: `dlq_pending`, then the letter is written, then `dlq_recorded`, then
//! `failed`. Each event carries the state in which the way began, for those who see only its two ends.

use crate::footprint::Footprint;
use crate::{
    By, Cause, DeadLetter, Digest, DlqId, Fact, Failure, Job, JobId, OpKind, Refusal, Timestamp,
    Transition, failure::GIVEN_UP, ops::needed_reason, transition::Draft,
};

/// A person gives up on a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bury {
    /// The job.
    pub job_id: JobId,
    /// In their words.
    pub reason: String,
    /// Who.
    pub by: By,
}

impl Bury {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_job(self.job_id).carrying(self.reason.len())
    }
}

pub(crate) fn decide(job: &Job, op: &Bury, now: Timestamp) -> Result<Transition, Refusal> {
    needed_reason(&op.reason)?;
    let mut draft = Draft::of(job, OpKind::Bury, &op.by, now);
    let failure = Failure::own(GIVEN_UP, &op.reason);
    record(&mut draft, Cause::OperatorGaveUp, failure, None, now)?;
    Ok(draft.finish(None))
}

/// Takes the whole way to the dead letters.
pub(crate) fn record(
    draft: &mut Draft<'_>,
    why: Cause,
    failure: Failure,
    settle: Option<Digest>,
    now: Timestamp,
) -> Result<(), Refusal> {
    let (dlq_id, began_in) = (DlqId::of_job(draft.job().id), draft.job().state);
    let fact = Fact::Buried { dlq_id, began_in, why, failure: failure.clone(), settle };
    draft.record(why, fact.clone())?;
    let letter = DeadLetter::new(draft.job(), why, failure, began_in, now);
    draft.transition().letter = Some(letter);
    draft.record(Cause::DlqWritten, fact.clone())?;
    draft.record(Cause::DlqClosed, fact)
}
