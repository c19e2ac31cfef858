//! Discard: a dead letter is thrown away, by two different people and with a reason.
//!
//! The first asks and says why; the second approves. Each leaves an approval, which never changes. The
//! job itself stays as it is: failed.

use crate::footprint::Footprint;
use crate::{
    Actor, Approval, By, DeadLetter, DlqId, Job, LetterState, Principal, Refusal, Timestamp,
    Transition, letter::ApprovalStep, ops::needed_reason,
};

/// A person wants a dead letter thrown away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discard {
    /// The letter.
    pub dlq_id: DlqId,
    /// Why.
    pub reason: String,
    /// Who.
    pub by: By,
}

/// A second person agrees to throw a dead letter away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApproveDiscard {
    /// The letter.
    pub dlq_id: DlqId,
    /// Who.
    pub by: By,
}

impl Discard {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_letter(self.dlq_id).carrying(self.reason.len())
    }
}

impl ApproveDiscard {
    pub(crate) fn footprint(&self) -> Footprint<'_> {
        Footprint::of_letter(self.dlq_id)
    }
}

pub(crate) fn decide(
    letter: &DeadLetter,
    failed: &Job,
    op: &Discard,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let principal = person(&op.by)?;
    needed_reason(&op.reason)?;
    match letter.state {
        LetterState::Discarded | LetterState::Requeued => {
            Err(Refusal::DlqClosed { state: letter.state })
        }
        LetterState::DiscardRequested => Err(Refusal::ApprovalRequired {
            why: "it was asked for before, and someone else has to approve",
        }),
        LetterState::Open => {
            let requested = DeadLetter {
                state: LetterState::DiscardRequested,
                discard_requested_by: Some(principal.clone()),
                discard_reason: Some(op.reason.clone()),
                ..letter.clone()
            };
            Ok(with_approval(failed, requested, (principal, &op.by), ApprovalStep::Requested, now))
        }
    }
}

pub(crate) fn approve(
    letter: &DeadLetter,
    failed: &Job,
    op: &ApproveDiscard,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    let principal = person(&op.by)?;
    match letter.state {
        LetterState::Discarded | LetterState::Requeued => {
            Err(Refusal::DlqClosed { state: letter.state })
        }
        LetterState::Open => Err(Refusal::ApprovalRequired {
            why: "someone else has to ask for it first, and say why",
        }),
        LetterState::DiscardRequested
            if letter.discard_requested_by.as_ref() == Some(principal) =>
        {
            Err(Refusal::ApprovalRequired { why: "whoever asked cannot approve" })
        }
        LetterState::DiscardRequested => {
            let discarded = DeadLetter {
                state: LetterState::Discarded,
                closed_at: Some(now),
                ..letter.clone()
            };
            Ok(with_approval(failed, discarded, (principal, &op.by), ApprovalStep::Approved, now))
        }
    }
}

/// Only people can discard: a worker or a timer has no say.
fn person(by: &By) -> Result<&Principal, Refusal> {
    match &by.actor {
        Actor::User(principal) => Ok(principal),
        Actor::Worker(_) | Actor::Recovery | Actor::Scheduler => {
            Err(Refusal::ApprovalRequired { why: "only people can ask and approve" })
        }
    }
}

fn with_approval(
    failed: &Job,
    letter: DeadLetter,
    (principal, by): (&Principal, &By),
    step: ApprovalStep,
    now: Timestamp,
) -> Transition {
    let approval = Approval {
        dlq_id: letter.id,
        principal: principal.clone(),
        step,
        reason: letter.discard_reason.clone().unwrap_or_default(),
        at: now,
    };
    let note = letter.note(letter.state.as_str(), by).with("reason", approval.reason.as_str());
    let unchanged = Transition::unchanged(failed);
    let (letter, approval, note) = (Some(letter), Some(approval), Some(note));
    Transition { letter, approval, note, ..unchanged }
}
