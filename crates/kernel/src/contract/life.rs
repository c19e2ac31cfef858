//! The life of one job, lived by the kernel, for the tests of the contracts.
//!
//! Time moves only when a test says so. Whatever the kernel refuses fails the test.

use std::time::Duration;

use crate::{
    Actor, By, Current, Event, Failure, Jitter, Job, JobId, Kind, Op, Payload, Principal, TenantId,
    Timestamp, Transition, WorkerId, decide,
    ids::ClaimId,
    ops::{Cancel, Claim, Enqueue, NewJob, Outcome, Settle},
    timer::{self, Alarm},
};

/// A job, and all that happened to it.
pub(super) struct Life {
    pub(super) job: Job,
    pub(super) events: Vec<Event>,
    now: Timestamp,
}

/// A job of the usual sort.
pub(super) fn usual() -> NewJob {
    NewJob::new(Kind::new("mail").unwrap(), Payload::parse("{}", 2).unwrap())
}

/// The enqueue of job number 1, by alice.
pub(super) fn enqueue(new: NewJob) -> Enqueue {
    Enqueue {
        job_id: JobId::from_u128(1),
        tenant: TenantId::new("acme").unwrap(),
        new: Box::new(new),
        random: 7,
        by: Actor::User(Principal::new("alice").unwrap()).into(),
    }
}

impl Life {
    /// A job is born at this time.
    pub(super) fn begin(new: NewJob, at: &str) -> Self {
        let now = at.parse().unwrap();
        let op = Op::Enqueue(enqueue(new));
        let born = decide(&Current::default(), &op, now).unwrap();
        Self { job: born.job, events: born.events, now }
    }

    /// Sends the same request again, and tells what it was answered.
    pub(super) fn send_again(&self, new: NewJob) -> Transition {
        let current =
            Current { by_key: Some(&self.job), new: Some(&self.job), ..Current::default() };
        decide(&current, &Op::Enqueue(enqueue(new)), self.now).unwrap()
    }

    /// One op happens.
    pub(super) fn op(&mut self, op: impl Into<Op>) -> &mut Self {
        let current = Current { job: Some(&self.job), ..Current::default() };
        let done = decide(&current, &op.into(), self.now).unwrap();
        self.job = done.job;
        self.events.extend(done.events);
        self
    }

    /// Time passes until this alarm, which rings.
    pub(super) fn ring(&mut self, alarm: Alarm) -> &mut Self {
        self.now = timer::rings_at(&self.job, alarm).unwrap();
        self.op(timer::op(&self.job, alarm, Jitter::NONE))
    }

    /// Time passes until a worker may claim the job. It does, and starts at once.
    pub(super) fn start(&mut self) -> &mut Self {
        self.now = self.now.max(self.job.claim_at().unwrap());
        self.op(Claim {
            job_id: self.job.id,
            claim_id: ClaimId::from_u128(self.job.version.into()),
            worker: worker(),
            trace_id: None,
            lease: Duration::from_secs(3_600),
            start: true,
            alone: true,
        })
    }

    /// The worker reports how it ended.
    pub(super) fn settle(&mut self, outcome: Outcome) -> &mut Self {
        self.op(Settle {
            job_id: self.job.id,
            epoch: self.job.epoch,
            by: By::worker(worker()),
            outcome,
            stats: None,
            jitter: Jitter::NONE,
        })
    }

    /// The worker reports that it is done.
    pub(super) fn succeed(&mut self) -> &mut Self {
        self.settle(Outcome::Succeeded { result: None })
    }

    /// The worker reports that the mail server is down, which may pass.
    pub(super) fn fail(&mut self) -> &mut Self {
        self.settle(Outcome::Failed(Failure::transient("SMTP_DOWN", "connection refused")))
    }

    /// Alice cancels it.
    pub(super) fn cancel(&mut self) -> &mut Self {
        self.op(Cancel {
            job_id: self.job.id,
            force: true,
            grace: Cancel::GRACE_DEFAULT,
            reason: Some("not needed".to_owned()),
            by: Actor::User(Principal::new("alice").unwrap()).into(),
        })
    }
}

fn worker() -> WorkerId {
    WorkerId::new("w1").unwrap()
}
