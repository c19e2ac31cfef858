//! Ops: everything that changes a job, one file each.
//!
//! An op is a value. [`decide`] looks at what there is and says what the op does, or refuses. Each file
//! has the op and its `decide`: refusals first, then what happens.
//!
//! Always true: an unknown job is `NOT_FOUND`; a writer without a live lease of its epoch is `STALE_ATTEMPT`
//! before the job's state is looked at, unless it repeats a settle that is on record. One exception: the epoch whose
//! settle ended the job is `INVALID_TRANSITION` if it writes anything else, for it lost nothing. The same enqueue,
//! claim, start, settle, requeue and re-run again get the recorded answer. Any other op again is judged
//! by the rules: what it asked for has happened, and the refusal changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Actor, By, DeadLetter, DlqId, Epoch, Job, JobId, Lease, Refusal, RuleName, Task, Timestamp,
    Transition,
    holder::may_write,
    ledger::{Effect, Mail, Step},
    machine::words,
};
pub use crate::{
    footprint::{Footprint, LedgerRows, Makes, Urgency},
    job::ops::{
        bury::Bury,
        cancel::Cancel,
        claim::Claim,
        enqueue::{Enqueue, Fingerprint, Idempotency, NewJob, NewTask},
        expire::{Expire, Expiry},
        promote::{Promote, PromoteWhen},
        release::Release,
        renew::Renew,
        rerun::Rerun,
        retry_now::RetryNow,
        settle::{Outcome, Settle},
        start::Start,
        wait::WaitFor,
        wake::{Wake, WakeBy},
    },
    ledger::ops::{
        advance::{Advance, Entry, Happened},
        checkpoint::Checkpoint,
        effect::HandIn,
        resolve::{Resolve, Stated, Statement},
        signal::Signal,
    },
    letter::ops::{
        discard::{ApproveDiscard, Discard},
        requeue::Requeue,
    },
};
pub(crate) use crate::{
    job::ops::{
        bury, cancel, claim, enqueue, expire, promote, release, renew, rerun, retry_now, settle,
        start, wait, wake,
    },
    ledger::ops::{advance, checkpoint, effect, resolve, signal},
    letter::ops::{discard, requeue},
};

/// What there is, as far as the op needs to know it. The caller loads and locks it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Current<'a> {
    /// The job that the op names; for `requeue`, `discard` and `approve_discard` the letter's job.
    pub job: Option<&'a Job>,
    /// The job that already has the id the op wants to create.
    pub new: Option<&'a Job>,
    /// The job that already has the idempotency key.
    pub by_key: Option<&'a Job>,
    /// The job that is not at its end and has the unique key.
    pub by_unique: Option<&'a Job>,
    /// The rule that lets nothing new in where the new job would wait.
    pub drained_by: Option<&'a RuleName>,
    /// The job that a new job names as its parent.
    pub parent: Option<&'a Job>,
    /// The job that a wait names as its child.
    pub child: Option<&'a Job>,
    /// What is known of the task that the new job runs.
    pub task: Option<&'a Task>,
    /// The last job of that task, if it failed and an `enqueue` names the task.
    pub failed: Option<&'a Job>,
    /// The dead letter that the op names; for `rerun` that of its job, if it has one; for `enqueue` that of `failed`.
    pub letter: Option<&'a DeadLetter>,
    /// The steps that the op names, as far as there are any.
    pub steps: &'a [&'a Step],
    /// The mail that the op names, as far as it is there.
    pub mails: &'a [&'a Mail],
    /// What was handed in late of the step that the op names.
    pub effect: Option<&'a Effect>,
    /// The incarnation of the store.
    pub incarnation: u32,
}

impl<'a> Current<'a> {
    pub(crate) fn job(&self) -> Result<&'a Job, Refusal> {
        self.job.ok_or(Refusal::NotFound { what: "job" })
    }

    pub(crate) fn letter(&self) -> Result<&'a DeadLetter, Refusal> {
        self.letter.ok_or(Refusal::NotFound { what: "dead letter" })
    }
}

macro_rules! ops {
    ($(#[doc = $meaning:literal] $variant:ident($op:ty) = $word:literal,)*) => {
        /// Something that is to happen to a job.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Op {
            $(#[doc = $meaning] $variant($op),)*
        }

        words!(
            /// The name of an op.
            OpKind {
                $(#[doc = $meaning] $variant = $word,)*
            }
        );

        impl Op {
            /// Its name.
            pub fn kind(&self) -> OpKind {
                match self {
                    $(Op::$variant(_) => OpKind::$variant,)*
                }
            }

            /// What it says of itself before it is decided.
            pub fn footprint(&self) -> Footprint<'_> {
                match self {
                    $(Op::$variant(op) => op.footprint(),)*
                }
            }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op {
                Op::$variant(op)
            }
        })*
    };
}

ops! {
    /// Creates a job, once for each idempotency key.
    Enqueue(Enqueue) = "enqueue",
    /// Makes a scheduled job due, when its time has come or at once.
    Promote(Promote) = "promote",
    /// Gives a worker the lease of a job, under a new epoch.
    Claim(Claim) = "claim",
    /// Begins to run a job that was claimed.
    Start(Start) = "start",
    /// Keeps a lease. It writes no event.
    Renew(Renew) = "renew",
    /// Gives a job back in good order.
    Release(Release) = "release",
    /// Reports how an execution ended.
    Settle(Settle) = "settle",
    /// Says how the ledger of a job grows: steps that begin, and what comes of them.
    Advance(Advance) = "advance",
    /// Saves the state of a handler.
    Checkpoint(Checkpoint) = "checkpoint",
    /// Hands in what came of a step, also after its lease is lost.
    HandIn(HandIn) = "hand_in",
    /// Parks a job on a signal, a time or a child.
    Wait(WaitFor) = "wait",
    /// Ends a wait.
    Wake(Wake) = "wake",
    /// Brings a job a signal, a message, or the end of a child.
    Signal(Signal) = "signal",
    /// States what became of a step, or lets a parked job go on.
    Resolve(Resolve) = "resolve",
    /// Says that something ran out: a lease, a time-out, a deadline.
    Expire(Expire) = "expire",
    /// Asks a job to stop, or stops it.
    Cancel(Cancel) = "cancel",
    /// Makes a retry due at once.
    RetryNow(RetryNow) = "retry_now",
    /// Gives a job up: it becomes a dead letter.
    Bury(Bury) = "bury",
    /// Lets a new job take over from a dead letter.
    Requeue(Requeue) = "requeue",
    /// Asks to throw a dead letter away.
    Discard(Discard) = "discard",
    /// Agrees to throw a dead letter away, as a second person.
    ApproveDiscard(ApproveDiscard) = "approve_discard",
    /// Runs the task of a job that failed or was cancelled again, as a new job.
    Rerun(Rerun) = "rerun",
}

impl Op {
    /// The job it names, or the one it creates.
    pub fn job_id(&self) -> Option<JobId> {
        self.footprint().job
    }

    /// The dead letter it names; that of the job, if the job is to run again.
    pub fn dlq_id(&self) -> Option<DlqId> {
        self.footprint().letter
    }

    /// The id of the job it would create.
    pub fn new_job_id(&self) -> Option<JobId> {
        self.footprint().makes.id()
    }
}

/// Says what `op` does to what there is, or refuses.
pub fn decide(current: &Current<'_>, op: &Op, now: Timestamp) -> Result<Transition, Refusal> {
    match op {
        Op::Enqueue(op) => enqueue::decide(current, op, now),
        Op::Promote(op) => promote::decide(current.job()?, op, now),
        Op::Claim(op) => claim::decide(current.job()?, op, current.incarnation, now),
        Op::Start(op) => start::decide(current.job()?, op, now),
        Op::Renew(op) => renew::decide(current.job()?, op, now),
        Op::Release(op) => release::decide(current.job()?, op, now),
        Op::Settle(op) => settle::decide(current.job()?, op, now),
        Op::Advance(op) => advance::decide(current.job()?, current, op, now),
        Op::Checkpoint(op) => checkpoint::decide(current.job()?, op, now),
        Op::HandIn(op) => effect::decide(current.job()?, current, op, now),
        Op::Wait(op) => wait::decide(current.job()?, current, op, now),
        Op::Wake(op) => wake::decide(current.job()?, op, now),
        Op::Signal(op) => signal::decide(current.job()?, current, op, now),
        Op::Resolve(op) => resolve::decide(current.job()?, current, op, now),
        Op::Expire(op) => expire::decide(current.job()?, op, now),
        Op::Cancel(op) => cancel::decide(current.job()?, op, now),
        Op::RetryNow(op) => retry_now::decide(current.job()?, op, now),
        Op::Bury(op) => bury::decide(current.job()?, op, now),
        Op::Requeue(op) => requeue::decide(current.letter()?, current.job()?, current, op, now),
        Op::Discard(op) => discard::decide(current.letter()?, current.job()?, op, now),
        Op::ApproveDiscard(op) => discard::approve(current.letter()?, current.job()?, op, now),
        Op::Rerun(op) => rerun::decide(current.job()?, current, op, now),
    }
}

/// Only the epoch that holds the lease may write, and only the one to whom the lease belongs. It gives back who writes: a
/// worker has the name that its lease has. The epoch that settled the job for good did not lose its lease: it asks for a
/// move that an end does not have.
pub(crate) fn fence(job: &Job, epoch: Epoch, by: &By, op: OpKind) -> Result<By, Refusal> {
    match live_lease(job, epoch, by) {
        Some(lease) => {
            let actor = match by.actor {
                Actor::Worker(_) => Actor::Worker(lease.worker.clone()),
                _ => by.actor.clone(),
            };
            Ok(By { actor, trace_id: by.trace_id.clone() })
        }
        None if job.was_settled_for_good_by(epoch) => {
            Err(Refusal::InvalidTransition { from: job.state, op })
        }
        None => Err(Refusal::StaleAttempt),
    }
}

/// The lease of this epoch, if it is live and belongs to whoever writes.
pub(crate) fn live_lease<'a>(job: &'a Job, epoch: Epoch, by: &By) -> Option<&'a Lease> {
    let lease = job.lease.as_ref().filter(|_| job.has_live_lease(epoch));
    lease.filter(|lease| may_write(&lease.worker, &by.actor))
}

/// The longest reason that a caller may give.
const REASON_MAX_BYTES: usize = 4096;

pub(crate) fn check_reason(reason: Option<&str>) -> Result<(), Refusal> {
    if reason.is_some_and(|reason| reason.len() > REASON_MAX_BYTES) {
        return Err(Refusal::invalid("reason", "must be at most 4096 bytes long"));
    }
    Ok(())
}

/// A reason that must be given.
pub(crate) fn needed_reason(reason: &str) -> Result<(), Refusal> {
    if reason.trim().is_empty() {
        return Err(Refusal::invalid("reason", "must not be empty"));
    }
    check_reason(Some(reason))
}

/// A timer acts on the version it saw.
pub(crate) fn unchanged_since(job: &Job, version: u64) -> Result<(), Refusal> {
    if job.version == version { Ok(()) } else { Err(Refusal::Outdated) }
}
