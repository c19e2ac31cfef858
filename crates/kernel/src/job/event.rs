//! Events: the history of a job, one immutable fact each.
//!
//! Every transition writes its events in the transaction that changes the row. An event says what
//! happened, from which state to which, why, when and by whom. It carries digests of payloads, never
//! payloads. Within a job events are numbered 1, 2, 3 … without a gap.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    Cause, Digest, DlqId, Epoch, Failure, JobId, Principal, Refusal, Spec, State, Timestamp,
    TraceId, WorkerId,
    ids::{ClaimId, StepKey},
    job::{Origin, Wait, Wakeup},
    ledger::{MailName, RecordedBy, Shape},
};

/// One fact of a job's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The job it speaks of.
    pub job_id: JobId,
    /// Its place in the job's history, from 1.
    pub number: u64,
    /// When it happened, by the store's clock.
    pub at: Timestamp,
    /// Why.
    pub cause: Cause,
    /// The state before; none at creation.
    pub from: Option<State>,
    /// The state after.
    pub to: State,
    /// The attempt it belongs to. The event into `retry_scheduled` has the attempt that failed.
    pub attempt: u32,
    /// Retries used so far.
    pub retry_count: u32,
    /// The last epoch granted.
    pub epoch: Epoch,
    /// Had the job ever started, before this event?
    pub started: bool,
    /// Who did it.
    pub actor: Actor,
    /// The trace of the request behind it, where it brought one; else the job's own counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<TraceId>,
    /// What else is worth knowing.
    pub fact: Fact,
}

impl Event {
    /// Had the job ever started, after this event?
    pub fn started_after(&self) -> bool {
        self.started || self.cause == Cause::Started
    }

    /// Does it tell what a person did to the job? To enqueue one is no such act; to run its task again is.
    pub fn is_act(&self) -> bool {
        if !matches!(self.actor, Actor::User(_)) {
            return false;
        }
        match self.cause {
            Cause::CancelRequested | Cause::CancelCommand | Cause::OperatorGaveUp => true,
            Cause::RetryNow | Cause::RunNow | Cause::StepResolved => true,
            Cause::Enqueued | Cause::Scheduled => match &self.fact {
                Fact::Created { spec, .. } => matches!(spec.origin, Origin::Rerun(_)),
                _ => false,
            },
            _ => false,
        }
    }

    /// Did the job's state change?
    pub fn is_move(&self) -> bool {
        self.from != Some(self.to)
    }
}

/// What an event knows beyond cause and states: all that the row needs to be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fact {
    /// Cause and states say it all.
    Plain,
    /// The job was created.
    Created {
        /// What was asked for.
        spec: Arc<Spec>,
        /// Its first attempt: 1, or more for a task that ran before.
        attempt: u32,
    },
    /// A lease was granted.
    Claimed {
        /// The new epoch.
        epoch: Epoch,
        /// The claim, so that it is known again.
        claim_id: ClaimId,
        /// Who holds the lease.
        worker: WorkerId,
    },
    /// The execution was cut off.
    Interrupted {
        /// Does it count towards `max_interruptions`?
        counted: bool,
    },
    /// The handler ended well.
    Finished {
        /// The identity of the settle.
        settle: Digest,
        /// The digest of the result.
        result: Option<Digest>,
        /// The digest of what is left to do.
        remaining: Option<Digest>,
    },
    /// The job parked.
    Parked {
        /// What it waits for.
        wait: Wait,
    },
    /// The job woke.
    Woken {
        /// How its wait ended.
        how: Wakeup,
        /// The digest of what the signal brought.
        payload: Option<Digest>,
    },
    /// A retry was scheduled.
    Retry {
        /// What failed.
        failure: Failure,
        /// When the retry is due.
        next_retry_at: Timestamp,
        /// The identity of the settle, if one reported it.
        settle: Option<Digest>,
    },
    /// One of the three events of the way to the dead letters.
    Buried {
        /// The dead letter.
        dlq_id: DlqId,
        /// The state in which the way began.
        began_in: State,
        /// Why it began.
        why: Cause,
        /// What failed.
        failure: Failure,
        /// The identity of the settle, if one reported it.
        settle: Option<Digest>,
    },
    /// Someone asked to cancel it.
    CancelRequested {
        /// In the words of whoever asked.
        reason: Option<String>,
        /// When it is cancelled all the same.
        grace_until: Timestamp,
    },
    /// The job was cancelled.
    Cancelled {
        /// In the words of whoever cancelled.
        reason: Option<String>,
        /// What ran out, if nobody asked for it.
        failure: Option<Failure>,
        /// The identity of the settle, if the handler reported it.
        settle: Option<Digest>,
    },
    /// The handler saved its progress.
    Checkpoint {
        /// The digest of the saved state.
        state: Digest,
        /// How many bytes of it stand in the ledger, if it is kept there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kept: Option<u64>,
    },
    /// A step is about to run.
    StepBegun {
        /// The step.
        key: StepKey,
        /// What it is.
        shape: Shape,
        /// Tries that have failed before.
        #[serde(default, skip_serializing_if = "is_zero")]
        tries: u32,
        /// Is it begun for the first time?
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_new: bool,
    },
    /// A try of a step failed, and another one may follow.
    StepTryFailed {
        /// The step.
        key: StepKey,
        /// Tries that have failed by now.
        tries: u32,
        /// How this one failed.
        failure: Failure,
        /// When the next one is due.
        next_try_at: Option<Timestamp>,
    },
    /// A step ended.
    StepFinished {
        /// The step.
        key: StepKey,
        /// The digest of what came of it.
        outcome: Digest,
        /// Did it fail?
        failed: bool,
    },
    /// What came of a step is on record.
    StepCommitted {
        /// The step.
        key: StepKey,
        /// Its place among the records.
        number: u32,
        /// The digest of what came of it.
        outcome: Digest,
        /// How that is known.
        by: RecordedBy,
        /// How many bytes it holds.
        bytes: u64,
        /// Did it take mail?
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        takes_mail: bool,
    },
    /// Something came from outside.
    Signalled {
        /// What it is known by.
        name: MailName,
        /// The digest of what came.
        content: Digest,
    },
    /// A person let the job go on.
    Resolved {
        /// The step that they stated something of.
        step: Option<StepKey>,
        /// Did they state that nothing had happened?
        not_done: bool,
        /// In their words.
        reason: String,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Who acts, and in which request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    /// Who acts.
    pub actor: Actor,
    /// The trace of the request, if it brought one.
    pub trace_id: Option<TraceId>,
}

impl By {
    /// A worker, in a request that brought no trace.
    pub fn worker(id: WorkerId) -> Self {
        Actor::Worker(id).into()
    }
}

impl From<Actor> for By {
    fn from(actor: Actor) -> Self {
        Self { actor, trace_id: None }
    }
}

/// Who acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Actor {
    /// A worker session.
    Worker(WorkerId),
    /// The part that looks after jobs whose worker is gone.
    Recovery,
    /// The part that looks after time.
    Scheduler,
    /// A person or a program, by name.
    User(Principal),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Worker(id) => write!(f, "worker:{id}"),
            Actor::Recovery => f.write_str("recovery"),
            Actor::Scheduler => f.write_str("scheduler"),
            Actor::User(name) => write!(f, "user:{name}"),
        }
    }
}

impl From<Actor> for String {
    fn from(actor: Actor) -> String {
        actor.to_string()
    }
}

impl TryFrom<String> for Actor {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        match text.split_once(':') {
            Some(("worker", id)) => WorkerId::new(id).map(Actor::Worker),
            Some(("user", name)) => Principal::new(name).map(Actor::User),
            None if text == "recovery" => Ok(Actor::Recovery),
            None if text == "scheduler" => Ok(Actor::Scheduler),
            _ => Err(Refusal::invalid(
                "actor",
                "must be worker:<id>, recovery, scheduler or user:<name>",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_reads_back_as_it_was_written() {
        for text in ["worker:w1:2", "recovery", "scheduler", "user:alice"] {
            let actor = Actor::try_from(text.to_owned()).unwrap();
            assert_eq!(String::from(actor), text);
        }
        for text in ["", "worker:", "alice", "user", "robot:x", "recovery:x", "scheduler:"] {
            assert!(Actor::try_from(text.to_owned()).is_err(), "{text:?} was taken");
        }
    }
}
