//! A job in a situation, brought there by ordinary ops.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{
    Actor, By, DlqId, Epoch, Failure, Jitter, Job, JobId, Kind, Op, Payload, Principal, Spec,
    State, TenantId, Timestamp, WorkerId,
    ids::{ClaimId, CorrelationKey},
    job::{Wait, WaitOn},
    ledger::{MailContent, MailName},
    ops::{
        Bury, Cancel, Claim, Discard, Enqueue, Expire, Expiry, NewJob, Outcome, Requeue, Settle,
        Signal, Start, WaitFor,
    },
};

use crate::MapStore;

/// A store with one job in it, and what its caller knows.
pub(super) struct Sample {
    /// The store.
    pub(super) store: MapStore,
    /// The time.
    pub(super) now: Timestamp,
    /// The job.
    pub(super) job_id: JobId,
    /// What was asked for.
    pub(super) new: NewJob,
    /// The epoch that the caller holds, held last, or held before someone else took over.
    pub(super) epoch: Epoch,
    /// The claim that granted that epoch.
    pub(super) claimed: Option<Claim>,
    /// What was settled under that epoch.
    pub(super) settled: Option<Settle>,
}

const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

impl Sample {
    /// A job in the situation of this name.
    pub(super) fn of(situation: &str) -> Sample {
        match situation {
            "no job" => Sample::none(),
            "scheduled" => Sample::scheduled(),
            "scheduled, due" => Sample::scheduled().pass(2 * HOUR),
            "queued" => Sample::none().enqueue(),
            "queued again" => Sample::running().wait().wake(),
            "queued, to cancel" => Sample::running().wait().cancel(),
            "dispatched" => Sample::none().enqueue().claim(),
            "dispatched, stale epoch" => Sample::retry_due().taken_over(),
            "dispatched, to cancel" => Sample::running().wait().cancel().claim(),
            "running" => Sample::running(),
            "running, stale epoch" => Sample::retry_due().taken_over().started(),
            "running, to cancel" => Sample::running().cancel(),
            "waiting" => Sample::running().wait(),
            "retry_scheduled" => Sample::running().settle(retryable()),
            "retry_scheduled, due" => Sample::retry_due(),
            "interrupted" => Sample::running().interrupt(),
            "dlq_pending" => Sample::running().put(State::DlqPending),
            "dlq_recorded" => Sample::running().put(State::DlqRecorded),
            "succeeded" => Sample::running().settle(succeeded()),
            "partial" => Sample::running().settle(partial()),
            "cancelled" => Sample::running().settle(cancelled()),
            "failed" => Sample::failed(),
            "failed, discard requested" => Sample::failed().discard(),
            "failed, discarded" => Sample::failed().discard().approve_discard(),
            "failed, requeued" => Sample::failed().requeue(),
            "succeeded, stale epoch" => {
                Sample::retry_due().taken_over().started().settled_by_other()
            }
            "cancelled, by force" => Sample::running().cancelled_by_force(),
            "failed, given up" => Sample::running().given_up(),
            unknown => panic!("there is no situation {unknown:?}"),
        }
    }

    /// No job yet, and what would be asked for: everything that can run out is set.
    fn none() -> Sample {
        let now = Timestamp::from_micros(1_772_000_000_000_000);
        let new = NewJob {
            timeout: Some(HOUR),
            heartbeat_timeout: Some(HOUR),
            schedule_to_start: Some(DAY),
            deadline_at: Some(now.plus(30 * DAY)),
            ..NewJob::new(Kind::new("mail").expect("a name"), json("{}"))
        };
        let job_id = JobId::from_u128(1);
        let (epoch, store) = (Epoch::ZERO, MapStore::default());
        Sample { store, now, job_id, new, epoch, claimed: None, settled: None }
    }

    fn scheduled() -> Sample {
        let mut sample = Sample::none();
        sample.new.scheduled_at = Some(sample.now.plus(HOUR));
        sample.enqueue()
    }

    fn running() -> Sample {
        Sample::none().enqueue().claim().started()
    }

    fn retry_due() -> Sample {
        Sample::running().settle(retryable()).pass(HOUR)
    }

    fn failed() -> Sample {
        Sample::running().settle(last())
    }

    /// The job, if there is one.
    pub(super) fn job(&self) -> Option<&Job> {
        self.store.jobs.get(&self.job_id)
    }

    /// The number of its last event.
    pub(super) fn version(&self) -> u64 {
        self.job().map_or(0, |job| job.version)
    }

    /// The claim that anyone would make now.
    pub(super) fn next_claim(&self) -> Claim {
        let claims = self.job().map_or(0, |job| job.epoch.get());
        Claim {
            job_id: self.job_id,
            claim_id: ClaimId::from_u128(u128::from(claims) + 100),
            worker: worker(),
            trace_id: None,
            lease: HOUR,
            start: false,
            alone: true,
        }
    }

    /// A settle under the caller's epoch.
    pub(super) fn settle_as(&self, outcome: Outcome) -> Settle {
        let (job_id, epoch, by) = (self.job_id, self.epoch, by_worker());
        Settle { job_id, epoch, by, outcome, stats: None, jitter: Jitter::NONE }
    }

    /// What the job waits for, when it waits.
    pub(super) fn wait_for(&self) -> WaitFor {
        let wait = Wait { on: WaitOn::Signal(awaited()), until: Some(self.now.plus(HOUR)) };
        let (job_id, epoch, by) = (self.job_id, self.epoch, by_worker());
        WaitFor { job_id, epoch, by, wait, mails_seen: None }
    }

    /// Lets time pass.
    pub(super) fn pass(mut self, duration: Duration) -> Sample {
        self.now = self.now.plus(duration);
        self
    }

    /// Changes what was asked for, behind the kernel's back.
    pub(super) fn edit_spec(&mut self, edit: impl Fn(&Job, &mut Spec)) {
        if let Some(job) = self.store.jobs.get_mut(&self.job_id) {
            let mut spec = job.spec.as_ref().clone();
            edit(job, &mut spec);
            job.spec = Arc::new(spec);
        }
    }

    /// Puts the job into a state that no transaction leaves behind.
    fn put(mut self, state: State) -> Sample {
        let job = self.store.jobs.get_mut(&self.job_id).expect("the job was enqueued");
        (job.state, job.lease, job.execution_started_at) = (state, None, None);
        self
    }

    fn commit(mut self, op: impl Into<Op>) -> Sample {
        let op = op.into();
        if let Err(refusal) = self.store.commit(&op, self.now) {
            panic!("a sample needs {op:?}: {refusal}");
        }
        self
    }

    fn enqueue(self) -> Sample {
        let op = self.enqueue_op();
        self.commit(op)
    }

    /// The enqueue that made the job, or would make it.
    pub(super) fn enqueue_op(&self) -> Enqueue {
        Enqueue {
            job_id: self.job_id,
            tenant: TenantId::new("acme").expect("a name"),
            new: Box::new(self.new.clone()),
            random: 7,
            by: user("ann"),
        }
    }

    fn claim(mut self) -> Sample {
        let op = self.next_claim();
        self.claimed = Some(op.clone());
        self = self.commit(op);
        self.epoch = self.store.jobs[&self.job_id].epoch;
        self
    }

    /// Someone else claims it, and the caller goes on believing in its own epoch.
    fn taken_over(self) -> Sample {
        let op = self.next_claim();
        self.commit(op)
    }

    fn started(self) -> Sample {
        let (job_id, epoch) = (self.job_id, self.store.jobs[&self.job_id].epoch);
        self.commit(Start { job_id, epoch, by: by_worker() })
    }

    fn settle(mut self, outcome: Outcome) -> Sample {
        let op = self.settle_as(outcome);
        self.settled = Some(op.clone());
        self.commit(op)
    }

    /// Whoever took it over brings it to its end.
    fn settled_by_other(self) -> Sample {
        let epoch = self.store.jobs[&self.job_id].epoch;
        let op = Settle { epoch, ..self.settle_as(succeeded()) };
        self.commit(op)
    }

    fn cancelled_by_force(self) -> Sample {
        let op = self.cancel_op(true);
        self.commit(op)
    }

    fn given_up(self) -> Sample {
        let (job_id, reason) = (self.job_id, "enough".to_owned());
        self.commit(Bury { job_id, reason, by: user("ann") })
    }

    fn wait(self) -> Sample {
        let op = self.wait_for();
        self.commit(op)
    }

    fn wake(self) -> Sample {
        let job_id = self.job_id;
        self.commit(signal(job_id, awaited()))
    }

    fn cancel(self) -> Sample {
        let op = self.cancel_op(false);
        self.commit(op)
    }

    /// A cancel, asked for or forced.
    pub(super) fn cancel_op(&self, force: bool) -> Cancel {
        let grace = Cancel::GRACE_DEFAULT;
        Cancel { job_id: self.job_id, force, grace, reason: None, by: user("ann") }
    }

    fn interrupt(self) -> Sample {
        let (job_id, version) = (self.job_id, self.version());
        self.commit(Expire { job_id, version, what: Expiry::DeadSession, jitter: Jitter::NONE })
    }

    fn requeue(self) -> Sample {
        let op = self.requeue_op(JobId::from_u128(2));
        self.commit(op)
    }

    /// The job's letter, requeued as a job of this id.
    pub(super) fn requeue_op(&self, new_job_id: JobId) -> Requeue {
        let dlq_id = DlqId::of_job(self.job_id);
        Requeue { dlq_id, new_job_id, payload: None, by: user("ann") }
    }

    fn discard(self) -> Sample {
        let op = self.discard_op();
        self.commit(op)
    }

    /// Ann wants the job's letter thrown away.
    pub(super) fn discard_op(&self) -> Discard {
        let dlq_id = DlqId::of_job(self.job_id);
        Discard { dlq_id, reason: "seen and understood".to_owned(), by: user("ann") }
    }

    fn approve_discard(self) -> Sample {
        let dlq_id = DlqId::of_job(self.job_id);
        self.commit(windlass_kernel::ops::ApproveDiscard { dlq_id, by: user("bob") })
    }
}

/// The worker of every op.
pub(super) fn worker() -> WorkerId {
    WorkerId::new("w1").expect("a name")
}

/// The worker, as an actor.
pub(super) fn by_worker() -> By {
    By::worker(worker())
}

/// A person.
pub(super) fn user(name: &str) -> By {
    Actor::User(Principal::new(name).expect("a name")).into()
}

/// What a waiting job waits for.
pub(super) fn awaited() -> CorrelationKey {
    CorrelationKey::new("paid").expect("a key")
}

/// Some JSON.
pub(super) fn json(text: &str) -> Payload {
    Payload::parse(text, 100).expect("JSON")
}

pub(super) fn succeeded() -> Outcome {
    Outcome::Succeeded { result: None }
}

pub(super) fn partial() -> Outcome {
    Outcome::Partial { result: None, remaining: json("[2,3]") }
}

pub(super) fn retryable() -> Outcome {
    Outcome::Failed(Failure::transient("BUSY", "try again"))
}

pub(super) fn last() -> Outcome {
    Outcome::Failed(Failure::permanent("BROKEN", "do not try again"))
}

pub(super) fn cancelled() -> Outcome {
    Outcome::Cancelled { reason: None }
}

/// A signal with this key.
pub(super) fn signal(job_id: JobId, key: CorrelationKey) -> Signal {
    let content = MailContent::Payload(json("null"));
    let (name, by) = (MailName::Signal(key), user("ann"));
    Signal { job_id, name, content, expect_waiting: false, by }
}
