//! The no-op job that is measured, and the writes that take it through its life.

use std::time::Duration;

use windlass::Ids;
use windlass_kernel::{
    Actor, By, Jitter, Job, Kind, Payload, Principal, Queue, TenantId, WorkerId,
    ops::{Enqueue, NewJob, Outcome, Settle},
};
use windlass_store::{ClaimMany, Write};

/// What a small job carries. The rows of the yardstick have it too.
pub(super) const PAYLOAD: &str = r#"{"n":1,"to":"someone@example.com","template":"welcome-back"}"#;

/// Longer than any batch takes.
const LEASE: Duration = Duration::from_secs(300);

pub(super) struct Noop {
    tenant: TenantId,
    kind: Kind,
    queue: Queue,
    by: By,
    ids: Ids,
}

impl Noop {
    pub(super) fn new() -> Self {
        Self {
            tenant: TenantId::new("default").expect("it is a name"),
            kind: Kind::new("noop").expect("it is a name"),
            queue: Queue::new(NewJob::DEFAULT_NAME).expect("it is a name"),
            by: Actor::User(Principal::new("bench").expect("it is a name")).into(),
            ids: Ids::system(),
        }
    }

    /// A new job, made as a caller makes it: with ids of its own, and a payload that is parsed.
    pub(super) fn enqueue(&self) -> Enqueue {
        let payload = Payload::parse(PAYLOAD, PAYLOAD.len()).expect("it is JSON");
        Enqueue {
            job_id: self.ids.job_id(),
            tenant: self.tenant.clone(),
            new: Box::new(NewJob::new(self.kind.clone(), payload)),
            random: self.ids.random(),
            by: self.by.clone(),
        }
    }

    /// A claim that starts what it gets.
    pub(super) fn claim(&self, worker: &WorkerId, max: usize) -> Write {
        Write::Claim(ClaimMany {
            claim_id: self.ids.claim_id(),
            worker: worker.clone(),
            trace_id: None,
            tenant: None,
            queues: vec![self.queue.clone()],
            kinds: Vec::new(),
            max,
            lease: LEASE,
            start: true,
        })
    }

    /// The job went well: there was nothing to do.
    pub(super) fn settle(&self, worker: &WorkerId, job: &Job) -> Write {
        let op = Settle {
            job_id: job.id,
            epoch: job.epoch,
            by: By::worker(worker.clone()),
            outcome: Outcome::Succeeded { result: None },
            stats: None,
            jitter: Jitter::NONE,
        };
        self.op(op)
    }

    pub(super) fn op(&self, op: impl Into<windlass_kernel::Op>) -> Write {
        Write::Op { tenant: self.tenant.clone(), op: op.into() }
    }
}

/// The workers of a benchmark, by number.
pub(super) fn worker(number: u64) -> WorkerId {
    WorkerId::new(format!("bench-{number}")).expect("it is a name")
}
