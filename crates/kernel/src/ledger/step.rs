//! A step: one durable operation of a handler, and the row that remembers it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Digest, Epoch, Failure, JobId, Payload, Refusal, Timestamp, ids::StepKey, machine::words,
};

words!(
    /// What a durable operation is.
    StepOp {
        /// Code of the handler's own, with or without an effect outside.
        Step = "step",
        /// A wait for a time.
        Sleep = "sleep",
        /// A wait for a signal.
        Signal = "signal",
        /// A wait for the next message of a channel.
        Receive = "recv",
        /// Another job, and its end.
        Child = "child",
        /// A wait for somebody outside who has a token.
        Callback = "callback",
        /// Which version of the code this job goes by.
        Version = "version",
        /// A value that is shown outside.
        Publish = "publish",
        /// The state of the handler: what came before it is not replayed.
        Checkpoint = "checkpoint",
    }
);

words!(
    /// What may happen to the effect of a step if its worker dies.
    Mode {
        /// It is never run again unless it is known that nothing happened.
        Once = "once",
        /// It is run again with the same key, and the other side sees that it is the same.
        Idempotent = "idempotent",
        /// It has no effect outside, so it can be run again.
        Pure = "pure",
    }
);

words!(
    /// How the outcome of a step is known.
    RecordedBy {
        /// The attempt that ran it says so.
        Executed = "executed",
        /// A worker that had lost its lease handed it in later.
        LateEffect = "late_effect",
        /// The other side was asked what had happened.
        Reconciled = "reconciled",
        /// A person has stated it.
        Stated = "stated",
    }
);

/// What a step is, as far as a replay compares it: the same code asks for the same shape again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// What it does.
    pub op: StepOp,
    /// What may happen to its effect. Set if and only if it is a step of the handler's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The digest of what goes into it, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Digest>,
    /// The kind of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl Shape {
    /// A step of the handler's own.
    pub fn step(mode: Mode, input: Option<Digest>) -> Self {
        Self { op: StepOp::Step, mode: Some(mode), input, target: None }
    }

    /// Any other operation.
    pub fn of(op: StepOp) -> Self {
        Self { op, mode: None, input: None, target: None }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.op)?;
        self.mode.iter().try_for_each(|mode| write!(f, ", {mode}"))?;
        self.target.iter().try_for_each(|target| write!(f, ", {target}"))?;
        self.input.iter().try_for_each(|input| write!(f, ", input {input}"))
    }
}

impl StepKey {
    /// The key of the step of this name that is the nth of that name, from 1.
    pub fn of_step(name: &str, nth: u32) -> Result<Self, Refusal> {
        if name.contains('#') || name.starts_with('@') {
            return Err(Refusal::invalid("step", "must not contain # nor begin with @"));
        }
        Self::numbered(name, nth)
    }

    /// The key of another operation: what it does, what it is about, and which of those it is.
    pub fn of_op(op: StepOp, about: &str, nth: u32) -> Result<Self, Refusal> {
        match about {
            "" => Self::numbered(&format!("@{op}"), nth),
            about => Self::numbered(&format!("@{op}:{about}"), nth),
        }
    }

    fn numbered(name: &str, nth: u32) -> Result<Self, Refusal> {
        if nth == 1 { Self::new(name) } else { Self::new(format!("{name}#{nth}")) }
    }
}

/// One durable operation of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whose it is.
    pub job_id: JobId,
    /// Its name within the job.
    pub key: StepKey,
    /// What it is.
    pub shape: Shape,
    /// The epoch that last began it.
    pub epoch: Epoch,
    /// The call that last began it: the same call again may run it, another one of the same epoch may not.
    pub call_id: u64,
    /// When it was first begun.
    pub begun_at: Timestamp,
    /// When a wait is over in any case.
    pub until: Option<Timestamp>,
    /// The place in the code that asked for it.
    pub location: Option<String>,
    /// Tries that have failed.
    pub tries: u32,
    /// How the last of them failed.
    pub failure: Option<Failure>,
    /// When the next try is due, if one is.
    pub next_try_at: Option<Timestamp>,
    /// Is it known that its effect did not happen since it was last begun?
    pub not_done: bool,
    /// What came of it.
    pub record: Option<Record>,
}

/// What came of a step. It never changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its place in the order in which the handler saw what came of its steps, from 1.
    pub number: u32,
    /// The attempt that it was recorded in.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// What came of it.
    pub outcome: StepOutcome,
    /// How that is known.
    pub by: RecordedBy,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// It is done, and this is its result: JSON, also `null`.
    Done(Payload),
    /// It failed for good, and the handler was told so.
    Failed(Failure),
}

impl StepOutcome {
    /// What tells two outcomes apart.
    pub fn digest(&self) -> Digest {
        match self {
            StepOutcome::Done(payload) => payload.digest(),
            StepOutcome::Failed(failure) => {
                let failure = serde_json::to_string(failure).expect("a failure is plain data");
                Digest::of(&format!("failed {failure}"))
            }
        }
    }

    /// How many bytes it holds.
    pub fn bytes(&self) -> usize {
        match self {
            StepOutcome::Done(payload) => payload.as_str().len(),
            StepOutcome::Failed(failure) => failure.message.len(),
        }
    }

    /// Did it fail?
    pub fn is_failed(&self) -> bool {
        matches!(self, StepOutcome::Failed(_))
    }
}

impl Step {
    /// The key for systems downstream: the same in every try, epoch, attempt and inherited ledger, and different for every
    /// other step, job and tenant. `ledger` is the job whose ledger it was first.
    pub fn downstream_key(ledger: JobId, key: &StepKey, input: Option<Digest>) -> String {
        let mut text = format!("{ledger}\n{key}\n");
        text.extend(input.map(|input| input.to_string()));
        Digest::of(&text).to_string()
    }

    /// Does this attempt of the job still stand by what is on record? A failure of an earlier attempt does not count: the
    /// retry is there to try again.
    pub fn counts_in(&self, attempt: u32) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.attempt == attempt || !record.outcome.is_failed())
    }

    /// Is nobody allowed to run its effect, because it may have happened?
    pub fn is_behind_barrier(&self, epoch: Epoch) -> bool {
        self.shape.mode == Some(Mode::Once) && !self.not_done && self.epoch != epoch
    }
}

/// What a worker is told of one entry of its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepAnswer {
    /// It is begun: run it.
    Execute {
        /// Tries that have failed before.
        tries: u32,
        /// When a wait is over in any case, as it was first said.
        until: Option<Timestamp>,
    },
    /// It was recorded before: take the result, and run nothing.
    Recorded(Record),
    /// Another call of the same attempt has begun it and runs it.
    Wait,
    /// A worker that is gone has begun it, and nobody knows what became of it.
    Barrier {
        /// The epoch that began it.
        epoch: Epoch,
    },
    /// It is recorded now, under this number.
    Done {
        /// Its place among the records.
        number: u32,
    },
    /// The failed try is noted.
    Noted,
}
