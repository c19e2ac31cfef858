//! Requeue: a new job takes over from a dead letter.
//!
//! The new job runs the same task and is linked to the letter. The letter closes in the same
//! transaction, so it is requeued if and only if its new job exists. The job that failed stays failed.

use crate::footprint::{Footprint, Makes, size};
use crate::{
    By, DeadLetter, DlqId, Job, JobId, LetterState, Note, Payload, Refusal, Timestamp, Transition,
    job::Origin,
    ops::{Current, rerun},
    own_names::is_own,
};

/// A new job takes over from a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requeue {
    /// The letter.
    pub dlq_id: DlqId,
    /// The id of the new job.
    pub new_job_id: JobId,
    /// Another payload than the one that failed.
    pub payload: Option<Payload>,
    /// Who.
    pub by: By,
}

impl Requeue {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        let makes = Makes::Again { new_job_id: self.new_job_id };
        let footprint = Footprint::of_letter(self.dlq_id).making(makes);
        footprint.carrying(size(self.payload.as_ref()))
    }
}

pub(crate) fn decide(
    letter: &DeadLetter,
    failed: &Job,
    current: &Current<'_>,
    op: &Requeue,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let digest = op.payload.as_ref().map_or(failed.spec.payload_digest, Payload::digest);
    let same = |new: &&Job| letter.requeued_as == Some(new.id) && new.spec.payload_digest == digest;
    if let Some(new) = current.new.filter(same) {
        return Ok(Transition::recorded(new));
    }
    if letter.state.is_closed() {
        return Err(Refusal::DlqRequeueConflict { state: letter.state });
    }
    if op.payload.is_some() && is_own(failed.spec.kind.as_str()) {
        return Err(Refusal::invalid("payload", "cannot be changed: the job is the server's own"));
    }
    let again = rerun::Again {
        new_job_id: op.new_job_id,
        origin: Origin::Requeued(letter.id),
        payload: op.payload.as_ref(),
        by: &op.by,
    };
    let mut transition = rerun::create(failed, current, &again, now)?;
    take_over(&mut transition, letter, &op.by, now);
    Ok(transition)
}

/// The job that is made takes over from the letter, which closes with it.
pub(crate) fn take_over(transition: &mut Transition, letter: &DeadLetter, by: &By, now: Timestamp) {
    let heir = Some(transition.job.id);
    transition.letter = Some(DeadLetter {
        state: LetterState::Requeued,
        requeued_as: heir,
        closed_at: Some(now),
        ..letter.clone()
    });
    let note = letter.note(LetterState::Requeued.as_str(), by);
    transition.note = Some(Note { job_id: heir, ..note });
}
