//! A willing worker: it claims, starts and completes whatever it can get, and time passes as
//! needed.
//!
//! It never takes a lease from another worker: such a job comes free when its first alarm rings.

use std::time::Duration;

use windlass_kernel::{
    By, Jitter, Job, Op, State, WorkerId,
    ids::ClaimId,
    ops::{Claim, Outcome, Settle},
    timer,
};

use super::World;

impl World {
    /// The next op that brings `job` nearer to its end; none if it is there.
    ///
    /// # Panics
    /// If nothing can ever move the job again.
    pub fn willing_op(&mut self, job: &Job) -> Option<Op> {
        match job.state {
            state if state.is_end() => None,
            State::Waiting if job.wait.as_ref()?.until.is_none() => Some(self.end_wait(job)),
            State::Running if job.lease.as_ref()?.worker == willing() => Some(complete(job)),
            _ => match job.claim_at() {
                Some(at) => {
                    self.now = self.now.max(at);
                    Some(self.claim_willingly(job))
                }
                None => {
                    let (at, alarm) = timer::next(job).expect("something moves the job");
                    self.now = self.now.max(at);
                    Some(timer::op(job, alarm, Jitter::NONE))
                }
            },
        }
    }

    fn claim_willingly(&mut self, job: &Job) -> Op {
        Claim {
            job_id: job.id,
            claim_id: ClaimId::from_u128(self.fresh_id()),
            worker: willing(),
            trace_id: None,
            lease: Duration::from_secs(60),
            start: true,
            alone: true,
        }
        .into()
    }
}

fn complete(job: &Job) -> Op {
    Settle {
        job_id: job.id,
        epoch: job.epoch,
        by: By::worker(willing()),
        outcome: Outcome::Succeeded { result: None },
        stats: None,
        jitter: Jitter::NONE,
    }
    .into()
}

fn willing() -> WorkerId {
    WorkerId::new("willing").expect("a name")
}
