//! What is written, and what the writer of it is told.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{
    AcceptClock, Answer, Job, JobId, MarkName, Op, Refusal, Rule, ScheduleOp, TenantId, Timestamp,
    Token, TokenOp, WorkerId, ops::Claim, plain::check_plain, rule::RuleOp,
};

use super::{ClaimMany, Scheduled, claims::check_names};
use crate::read::Word;

/// One thing to be written.
#[derive(Clone, Debug)]
pub enum Write {
    /// An op on one job of this tenant.
    Op {
        /// Whose job it is. Another tenant's job is not found.
        tenant: TenantId,
        /// What is to happen.
        op: Op,
    },
    /// A worker wants jobs.
    Claim(ClaimMany),
    /// A worker keeps all its leases.
    RenewSession {
        /// The worker.
        worker: WorkerId,
        /// How long from now.
        lease: Duration,
    },
    /// What followed for another job is carried out. It is sent after the op that it asked for, which finds
    /// itself done if it is sent again: so nothing is lost in between.
    FollowUpDone {
        /// Its number.
        id: i64,
    },
    /// A rule is set, or taken away.
    Rule(RuleOp),
    /// A worker says what it listens to, that it is still there, or goodbye.
    Listens {
        /// The worker.
        worker: WorkerId,
        /// Whose worker it is; of every tenant, if none is named.
        tenant: Option<TenantId>,
        /// What it says.
        word: Word,
    },
    /// An op on one schedule, and the jobs that it makes.
    Schedule(ScheduleOp),
    /// A token is issued, or revoked.
    Token(TokenOp),
    /// The clock that the store follows is right, whatever it did: it is taken as it is.
    Clock(AcceptClock),
    /// A follower of the feed has come so far. A smaller number than it said before changes nothing.
    Mark {
        /// Who follows.
        name: MarkName,
        /// The last event that it is done with.
        number: u64,
    },
}

impl Write {
    /// Does one of these say that the clock is right?
    pub(crate) fn accept_clock(writes: &[Write]) -> bool {
        writes.iter().any(|write| matches!(write, Write::Clock(_)))
    }

    /// Refuses what is wrong whatever is stored. An op is judged by its own rules, but for its tenant:
    /// that the caller was let in as one tenant says nothing about another that it names.
    pub fn check(&self) -> Result<(), Refusal> {
        let lease = match self {
            Write::Op { tenant, op: Op::Enqueue(op) } if op.tenant != *tenant => {
                return Err(Refusal::NotFound { what: "tenant" });
            }
            Write::Op { .. } | Write::FollowUpDone { .. } | Write::Schedule(_) => return Ok(()),
            Write::Mark { number, .. } if i64::try_from(*number).is_err() => {
                return Err(Refusal::invalid("number", "is of no event"));
            }
            Write::Rule(_) | Write::Token(_) => return Ok(()),
            Write::Mark { .. } | Write::Clock(_) => return Ok(()),
            Write::Listens { word: Word::To(to), .. } => {
                return check_names(&to.queues, &to.kinds);
            }
            Write::Listens { word: Word::Still | Word::Goodbye, .. } => return Ok(()),
            Write::Claim(wanted) => {
                check_plain("worker_id", wanted.worker.as_str())?;
                return wanted.check();
            }
            Write::RenewSession { lease, .. } => *lease,
        };
        Claim::check_lease(lease)
    }
}

/// What a write is told.
#[derive(Clone, Debug)]
pub enum Reply {
    /// What the op did, and the job that it is about as it stands then. A store behind a server may not know the job.
    Answer(Answer, Option<Arc<Job>>),
    /// The jobs that the worker got.
    Granted {
        /// The jobs.
        jobs: Vec<Granted>,
        /// Was the same claim granted something before? Then these are the jobs that it still holds of what it got, and it
        /// gets no others, however often it is sent.
        repeated: bool,
        /// When to ask again at the latest, if a rule holds jobs back that time alone lets go: at once, if there is more
        /// than fits into one answer.
        again_at: Option<Timestamp>,
    },
    /// The session after its renewal, and what the worker has to know.
    Renewed {
        /// When its leases run out.
        until: Timestamp,
        /// Jobs it holds that are to be cancelled.
        cancelled: Vec<JobId>,
        /// Jobs it holds.
        held: Vec<JobId>,
    },
    /// What the op on a schedule did.
    Scheduled(Box<Scheduled>),
    /// The write was carried out, and its answer has no data.
    Done,
    /// The rule as it stands, or as it stood before it was taken away.
    Rule(Rule),
    /// The token as it stands.
    Token(Token),
}

/// A job that a worker got.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The job, with its lease.
    pub job: Arc<Job>,
    /// Its payload, byte for byte.
    pub payload: String,
}
