//! A refusal: the rules say no. Nothing changed, and it is a normal answer.
//!
//! Each variant is one public code. The table below says for each what it means and what to do next;
//! `docs/errors.md` is written from it.

use serde::Serialize;

use crate::{
    Class, JobId, LetterState, OpKind, RuleName, State, TaskId, Timestamp, ids::StepKey,
    ledger::MailName,
};

/// Why an op did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Whoever writes holds no live lease of this epoch. Drop the execution and write nothing more.
    #[error("this epoch holds no lease of the job")]
    StaleAttempt,
    /// The job's state has no such move. Look at the job again.
    #[error("a job that is {from} cannot be changed by {op}")]
    InvalidTransition {
        /// The state the job is in.
        from: State,
        /// The op that was asked for.
        op: OpKind,
    },
    /// There is no such thing, or it is another tenant's.
    #[error("no {what} of that name was found")]
    NotFound {
        /// What was looked for.
        what: &'static str,
    },
    /// Its time has not come.
    #[error("it is not due before {at}")]
    NotDue {
        /// When it will be.
        at: Timestamp,
    },
    /// The job changed since the caller looked. A timer that comes too late; nothing to do.
    #[error("the job changed since it was looked at")]
    Outdated,
    /// A value cannot be accepted.
    #[error("{field} {why}")]
    Invalid {
        /// The field, as the caller named it.
        field: &'static str,
        /// The rest of the sentence.
        why: String,
    },
    /// The key is known, and was used for something else.
    #[error("the idempotency key belongs to {job_id}, which differs in {}", fields.join(", "))]
    IdempotencyConflict {
        /// The job that has the key.
        job_id: JobId,
        /// The important fields that differ.
        fields: Vec<&'static str>,
    },
    /// The id of the new job is taken.
    #[error("there is a job {job_id} already")]
    JobExists {
        /// That id.
        job_id: JobId,
    },
    /// A job of this task has not come to its end.
    #[error("{job_id} of task {task_id} has not come to its end")]
    TaskActive {
        /// The task.
        task_id: TaskId,
        /// Its job that is active.
        job_id: JobId,
    },
    /// The task is known under another key.
    #[error("task {task_id} exists already")]
    TaskDuplicate {
        /// The task.
        task_id: TaskId,
    },
    /// A second person has to agree.
    #[error("discarding a dead letter takes two people: {why}")]
    ApprovalRequired {
        /// What is missing.
        why: &'static str,
    },
    /// The letter was requeued or discarded before.
    #[error("the dead letter cannot be requeued: it is {state}")]
    DlqRequeueConflict {
        /// What became of the letter.
        state: LetterState,
    },
    /// Nobody could issue tokens any more.
    #[error("it is the last token of an admin for tenant {tenant}")]
    LastAdmin {
        /// The tenant; `*` for all of them.
        tenant: String,
    },
    /// The letter is closed.
    #[error("the dead letter cannot be discarded: it is {state}")]
    DlqClosed {
        /// What became of the letter.
        state: LetterState,
    },
    /// Someone asked to cancel the job, so it may not wait for anything.
    #[error("the job is to be cancelled: clean up and settle it")]
    CancelRequested,
    /// The job waits for something else.
    #[error("the job does not wait for that")]
    NotWaitingFor,
    /// The job was interrupted twice, and may be what kills its worker.
    #[error("the job was interrupted twice: only a worker that holds nothing else may claim it")]
    ClaimAlone,
    /// Nothing new is taken in: its queue, kind or tenant is drained.
    #[error("nothing new is taken in: rule {rule} drains it")]
    Draining {
        /// The rule that says so.
        rule: RuleName,
    },
    /// The code asks for another step than the one on record. It has changed.
    #[error("step {key} is on record as {expected}, and the code now asks for {actual}")]
    Nondeterministic {
        /// The step.
        key: StepKey,
        /// What is on record.
        expected: String,
        /// What the code asks for.
        actual: String,
    },
    /// The step is on record with another outcome. The first one counts.
    #[error("step {key} is on record with another outcome")]
    StepRecorded {
        /// The step.
        key: StepKey,
    },
    /// A step that may run only once has to be begun before its effect runs.
    #[error("step {key} runs at most once, and was not begun")]
    StepNotBegun {
        /// The step.
        key: StepKey,
    },
    /// A worker that is gone began the step, and nobody knows what became of it.
    #[error("step {key} was begun by a worker that is gone: what became of it is unknown")]
    Barrier {
        /// The step.
        key: StepKey,
    },
    /// The ledger of the job is full.
    #[error("a job can have at most {max} {what}")]
    HistoryLimit {
        /// What there is too much of.
        what: &'static str,
        /// How much there can be.
        max: u64,
    },
    /// A signal of this name came before, with another content.
    #[error("{} came before, with another content", shown(name))]
    SignalConflict {
        /// What it is known by.
        name: MailName,
    },
}

fn shown(name: &MailName) -> String {
    match name {
        MailName::Signal(key) => format!("signal {key}"),
        MailName::Message { channel, id } => format!("message {id} of channel {channel}"),
        MailName::Child(job_id) => format!("the end of {job_id}"),
    }
}

/// What a code means to the one who gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CodeInfo {
    /// The code that programs see.
    pub code: &'static str,
    /// What sort of refusal it is.
    pub class: Class,
    /// May the same op succeed later?
    pub retryable: bool,
    /// What it means.
    pub meaning: &'static str,
    /// What to do next.
    pub remedy: &'static str,
}

macro_rules! codes {
    ($($variant:ident, $code:literal, $class:ident, $retryable:literal, $meaning:literal, $remedy:literal;)*) => {
        impl Refusal {
            /// Every code, in the order of the variants.
            pub const CODES: &'static [CodeInfo] = &[$(CodeInfo {
                code: $code,
                class: Class::$class,
                retryable: $retryable,
                meaning: $meaning,
                remedy: $remedy,
            }),*];

            /// The code that programs see.
            pub fn code(&self) -> &'static str {
                match self {
                    $(Refusal::$variant { .. } => $code),*
                }
            }
        }
    };
}

codes! {
    StaleAttempt, "STALE_ATTEMPT", BusinessRule, false,
        "The writer holds no live lease of this epoch: the lease ran out, the job was cancelled, another worker has it, or another principal claimed it.",
        "Drop the execution and write nothing more: what you sent now was not applied.";
    InvalidTransition, "INVALID_TRANSITION", BusinessRule, false,
        "The job's state has no such move.",
        "Read the job again. docs/states.md shows what each op does in each state.";
    NotFound, "NOT_FOUND", BusinessRule, false,
        "Nothing of that id or name is there for this tenant.",
        "Check the id or the name: the list of its kind says what there is. A job that ended long ago may have been pruned by retention.";
    NotDue, "NOT_DUE", Transient, true,
        "Its time has not come.",
        "Wait until the time that is named, or use retry to make a retry due now.";
    Outdated, "OUTDATED", Transient, false,
        "The job changed since the caller looked at it.",
        "Nothing: a timer came too late. Read the job again if you need its state.";
    Invalid, "INVALID_INPUT", Validation, false,
        "A value cannot be accepted; nothing was written.",
        "The message names the field and what it must be.";
    IdempotencyConflict, "IDEMPOTENCY_CONFLICT", BusinessRule, false,
        "The idempotency key is known and was used with other important fields.",
        "The message names the fields that differ. Use a new key for a new request, or send the same fields.";
    JobExists, "JOB_EXISTS", BusinessRule, false,
        "There is a job with this id already.",
        "Make a fresh id for a new job.";
    TaskActive, "TASK_ACTIVE", BusinessRule, true,
        "A job of this task has not come to its end, so the task cannot be run again yet.",
        "Wait for that job or cancel it, then run the task again.";
    TaskDuplicate, "TASK_DUPLICATE", BusinessRule, false,
        "The task exists already, its idempotency key is known with other fields, or a later job of it has run.",
        "Send the first request of the task again as it was, or use a new task id. To run a task again, retry its newest job.";
    ApprovalRequired, "APPROVAL_REQUIRED", BusinessRule, false,
        "Discarding a dead letter takes a reason and two different people.",
        "One person asks and says why, another one approves: the message says whose turn it is.";
    DlqRequeueConflict, "DLQ_REQUEUE_CONFLICT", BusinessRule, false,
        "The dead letter was requeued or discarded before.",
        "Look at the letter: it names the job that it became, or its approvals say who discarded it.";
    DlqClosed, "DLQ_CLOSED", BusinessRule, false,
        "The dead letter was requeued or discarded before.",
        "Nothing is left to discard. Look at the letter to see what became of it.";
    LastAdmin, "LAST_ADMIN", BusinessRule, false,
        "It is the last token of an admin: without it nobody could issue tokens from outside.",
        "Issue another token for an admin first, or say force.";
    CancelRequested, "CANCEL_REQUESTED", BusinessRule, false,
        "Someone asked to cancel the job, so it may not start to wait.",
        "Clean up and settle the job as cancelled.";
    NotWaitingFor, "NOT_WAITING_FOR", BusinessRule, false,
        "The job waits for something else.",
        "Check the correlation key against the job's wait.";
    ClaimAlone, "CLAIM_ALONE", BusinessRule, true,
        "The job was interrupted twice and may be what kills its worker, so it is claimed alone.",
        "Claim it when the worker holds nothing else, and say so.";
    Draining, "DRAINING", BusinessRule, true,
        "The queue, kind or tenant is being drained: what is there runs to its end, and nothing new is taken in.",
        "Enqueue elsewhere, or drop the rule that the message names and send it again.";
    Nondeterministic, "NONDETERMINISTIC", BusinessRule, false,
        "The code asks for another step than the one on record: it was changed while the job was under way, or it does not do the same each time.",
        "Bring back the old code, or guard the change by a version marker. Then let the job go on: windlass job resume.";
    StepRecorded, "STEP_RECORDED", BusinessRule, false,
        "The step is on record with another outcome. The first one counts.",
        "Take the recorded outcome: begin the step again, and it is told.";
    StepNotBegun, "STEP_NOT_BEGUN", BusinessRule, false,
        "A step of mode once has to be begun, durably, before its effect runs.",
        "Begin the step, run it when you are told to execute it, then record what came of it.";
    Barrier, "BARRIER", BusinessRule, false,
        "A worker that is gone began the step and recorded nothing, so its effect may have happened.",
        "Find out what happened, and record it as reconciled; or park the job and let a person state it.";
    HistoryLimit, "HISTORY_LIMIT", BusinessRule, false,
        "The ledger of the job holds as much as it can.",
        "Cut the work into children, or save a checkpoint and go on as a new job. Large results belong elsewhere: record a reference.";
    SignalConflict, "SIGNAL_CONFLICT", BusinessRule, false,
        "A signal with this key, or a message with this id, came before with another content.",
        "Look at what came first: that counts. Use another key or id for something else.";
}

impl Refusal {
    /// A value that cannot be accepted: `field` and the rest of the sentence.
    pub fn invalid(field: &'static str, why: impl Into<String>) -> Self {
        Refusal::Invalid { field, why: why.into() }
    }

    /// What the code means and what to do next.
    pub fn info(&self) -> &'static CodeInfo {
        let code = self.code();
        Self::CODES.iter().find(|info| info.code == code).expect("each code is in the table")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_stands_once_and_is_explained() {
        for (place, info) in Refusal::CODES.iter().enumerate() {
            assert!(!Refusal::CODES[..place].iter().any(|other| other.code == info.code));
            assert!(info.meaning.ends_with('.') && info.remedy.ends_with('.'), "{}", info.code);
        }
    }

    #[test]
    fn a_refusal_finds_its_row() {
        let refusal = Refusal::invalid("queue", "must not be empty");
        assert_eq!(refusal.info().code, "INVALID_INPUT");
        assert_eq!(refusal.to_string(), "queue must not be empty");
        let stale = Refusal::StaleAttempt;
        assert_eq!((stale.code(), stale.info().class), ("STALE_ATTEMPT", Class::BusinessRule));
    }
}
