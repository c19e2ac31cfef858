//! Requests: writes whose type says what they are answered with.
//!
//! A store answers a [`Write`] with a [`Reply`]. Which reply belongs to which write is said here and nowhere else: whoever
//! submits a request gets the type that belongs to it.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{
    Answer, Job, JobId, Op, Rule, ScheduleOp, TenantId, Timestamp, Token, TokenOp, WorkerId,
    rule::RuleOp,
};

use super::{ClaimMany, Granted, Reply, Scheduled, Write};

/// A write, and the type of its answer.
pub trait Request: Send {
    /// What it is told.
    type Reply: Send;

    /// The write that it is.
    fn into_write(self) -> Write;

    /// What a reply says to it; none, if it is the reply to another kind of write.
    fn read(reply: Reply) -> Option<Self::Reply>;

    /// What the reply to this kind of write says.
    fn expect(reply: Reply) -> Self::Reply {
        Self::read(reply).expect("a store answers a write with the reply of its kind")
    }
}

/// Any write, for callers that need not know what it is told.
impl Request for Write {
    type Reply = Reply;

    fn into_write(self) -> Write {
        self
    }

    fn read(reply: Reply) -> Option<Reply> {
        Some(reply)
    }
}

/// An op on one job of a tenant. It is told what the op did, and how the job stands then, if the store knows it.
#[derive(Clone, Debug)]
pub struct TenantOp {
    /// Whose job it is.
    pub tenant: TenantId,
    /// What is to happen.
    pub op: Op,
}

impl Request for TenantOp {
    type Reply = (Answer, Option<Arc<Job>>);

    fn into_write(self) -> Write {
        Write::Op { tenant: self.tenant, op: self.op }
    }

    fn read(reply: Reply) -> Option<Self::Reply> {
        match reply {
            Reply::Answer(answer, job) => Some((answer, job)),
            _ => None,
        }
    }
}

/// What a claim is told: the fields of [`Reply::Granted`].
#[derive(Clone, Debug)]
pub struct ClaimReply {
    /// The jobs.
    pub jobs: Vec<Granted>,
    /// Was the same claim granted something before? Then these are the jobs that it still holds, and it gets no others.
    pub repeated: bool,
    /// When to ask again at the latest.
    pub again_at: Option<Timestamp>,
}

impl Request for ClaimMany {
    type Reply = ClaimReply;

    fn into_write(self) -> Write {
        Write::Claim(self)
    }

    fn read(reply: Reply) -> Option<ClaimReply> {
        match reply {
            Reply::Granted { jobs, repeated, again_at } => {
                Some(ClaimReply { jobs, repeated, again_at })
            }
            _ => None,
        }
    }
}

/// A worker keeps all its leases.
#[derive(Clone, Debug)]
pub struct RenewSession {
    /// The worker.
    pub worker: WorkerId,
    /// How long from now.
    pub lease: Duration,
}

/// What a worker is told that keeps its leases: the fields of [`Reply::Renewed`].
#[derive(Clone, Debug)]
pub struct RenewalReply {
    /// When its leases run out.
    pub until: Timestamp,
    /// Jobs it holds that are to be cancelled.
    pub cancelled: Vec<JobId>,
    /// Jobs it holds.
    pub held: Vec<JobId>,
}

impl Request for RenewSession {
    type Reply = RenewalReply;

    fn into_write(self) -> Write {
        Write::RenewSession { worker: self.worker, lease: self.lease }
    }

    fn read(reply: Reply) -> Option<RenewalReply> {
        match reply {
            Reply::Renewed { until, cancelled, held } => {
                Some(RenewalReply { until, cancelled, held })
            }
            _ => None,
        }
    }
}

impl Request for ScheduleOp {
    type Reply = Scheduled;

    fn into_write(self) -> Write {
        Write::Schedule(self)
    }

    fn read(reply: Reply) -> Option<Scheduled> {
        match reply {
            Reply::Scheduled(told) => Some(*told),
            _ => None,
        }
    }
}

impl Request for RuleOp {
    type Reply = Rule;

    fn into_write(self) -> Write {
        Write::Rule(self)
    }

    fn read(reply: Reply) -> Option<Rule> {
        match reply {
            Reply::Rule(rule) => Some(rule),
            _ => None,
        }
    }
}

impl Request for TokenOp {
    type Reply = Token;

    fn into_write(self) -> Write {
        Write::Token(self)
    }

    fn read(reply: Reply) -> Option<Token> {
        match reply {
            Reply::Token(token) => Some(token),
            _ => None,
        }
    }
}
