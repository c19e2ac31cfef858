//! A worker whose calls reach another node than the one that remembers its job.
//!
//! One node granted a job; another ended that lease and granted the next. Whatever is then asked of the first is decided by
//! what is stored: no live lease is refused, and nothing is answered from a row that is no longer so.

use std::{sync::Arc, time::Duration};

use windlass_kernel::{
    Answer, By, Digest, Epoch, Jitter, Job, JobId, Op, Refusal, State, Timestamp,
    ids::ClaimId,
    job::{Wait, WaitOn},
    ops::{
        Cancel, Checkpoint, Claim, Expire, Expiry, NewJob, Release, Renew, Rerun, Start, WaitFor,
    },
};
use windlass_store::{ClaimMany, Reply, Store, Write, read::Scope};

use crate::common::{
    Backend, LEASE, START, TestStore, answer, clock, enqueue, failed_for_good, granted, person,
    plain, settle, succeeded, wanted, worker, write,
};

/// Two nodes of one store. The first has granted what the test speaks of.
struct Nodes {
    first: TestStore,
    other: Arc<dyn Store>,
}

impl Nodes {
    fn new() -> Self {
        let first = TestStore::new(Backend::Postgres);
        let other = first.home.open(clock(&Arc::new(START.into())), &first.runtime).unwrap();
        Self { first, other }
    }

    /// The same at the other node.
    fn elsewhere(&self, write: Write) -> Result<Reply, Refusal> {
        self.first.wait(self.other.commit(vec![write].into())).remove(0)
    }

    fn op_elsewhere(&self, op: impl Into<Op>) -> Answer {
        answer(&self.elsewhere(write(op)).unwrap())
    }

    /// A job that the first node has granted.
    fn grant(&self, number: u128, new: NewJob) -> Arc<Job> {
        let id = self.first.enqueue(number, new);
        let job = self.first.claim("w1", number, 1).remove(0).job;
        assert_eq!(job.id, id);
        job
    }

    /// A job that the first node has granted once, whose lease ended elsewhere, and which was granted elsewhere again.
    fn move_on(&self, number: u128, start: bool) -> (JobId, Epoch) {
        let job = self.grant(number, plain());
        self.op_elsewhere(dead(&job, job.version));
        let wanted = ClaimMany { start, ..wanted("w1", number + 1_000_000, 1) };
        let again = granted(&self.elsewhere(Write::Claim(wanted)).unwrap()).remove(0).job;
        assert_eq!(again.id, job.id);
        assert!(again.epoch > job.epoch);
        (again.id, again.epoch)
    }

    fn stored(&self, id: JobId) -> Job {
        self.first.wait(self.other.job(&Scope::Every, id)).unwrap()
    }
}

fn dead(job: &Job, version: u64) -> Expire {
    let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
    Expire { job_id: job.id, version, what, jitter }
}

fn by() -> By {
    By::worker(worker("w1"))
}

fn cancel(job_id: JobId, force: bool) -> Cancel {
    Cancel { job_id, force, grace: Duration::from_secs(30), reason: None, by: person("ann") }
}

/// Parks the job on its child, or for an hour.
fn wait_for(job_id: JobId, epoch: Epoch, child: Option<JobId>) -> WaitFor {
    let hour = Timestamp::from_micros(START + 3_600_000_000);
    let on = child.map_or(WaitOn::Time, WaitOn::Child);
    let until = child.is_none().then_some(hour);
    WaitFor { job_id, epoch, by: by(), wait: Wait { on, until }, mails_seen: None }
}

#[test]
fn a_live_lease_is_not_refused_by_a_node_that_remembers_the_one_before() {
    let nodes = Nodes::new();
    type Ask = fn(JobId, Epoch) -> Op;
    let asks: [(&str, bool, Ask, State); 6] = [
        ("settle", true, |id, epoch| settle(id, epoch, succeeded()).into(), State::Succeeded),
        (
            "renew",
            true,
            |job_id, epoch| {
                Renew { job_id, epoch, by: by(), lease: LEASE, heartbeat: true, progress: None }
                    .into()
            },
            State::Running,
        ),
        ("start", false, |job_id, epoch| Start { job_id, epoch, by: by() }.into(), State::Running),
        (
            "release",
            false,
            |job_id, epoch| Release { job_id, epoch, by: by() }.into(),
            State::Queued,
        ),
        ("wait", true, |id, epoch| wait_for(id, epoch, None).into(), State::Waiting),
        (
            "checkpoint",
            true,
            |job_id, epoch| {
                Checkpoint { job_id, epoch, by: by(), state: Digest::of("1"), kept: None }.into()
            },
            State::Running,
        ),
    ];
    for (number, (name, start, ask, state)) in (1..).zip(asks) {
        let (id, epoch) = nodes.move_on(number, start);
        let told = nodes.first.op(ask(id, epoch));
        let told = told.unwrap_or_else(|refusal| panic!("{name} of a live lease: {refusal:?}"));
        assert_eq!((told.state, told.recorded), (state, false), "{name}");
        assert_eq!(nodes.stored(id).state, state, "{name}");
        // Out of the way of the next.
        nodes.first.op(cancel(id, true)).ok();
    }
    let report = nodes.first.home.check();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn an_old_lease_is_refused_and_the_live_one_is_not_in_one_batch() {
    let nodes = Nodes::new();
    let job = nodes.grant(1, plain());
    nodes.op_elsewhere(dead(&job, job.version));
    let again = granted(&nodes.elsewhere(Write::Claim(wanted("w2", 2, 1))).unwrap()).remove(0).job;
    let settles = [job.epoch, again.epoch].map(|epoch| write(settle(job.id, epoch, succeeded())));
    let told = nodes.first.commit(settles.into());
    assert_eq!(told[0].as_ref().unwrap_err(), &Refusal::StaleAttempt);
    assert_eq!(answer(told[1].as_ref().unwrap()).state, State::Succeeded);
}

/// The node refuses rightly, and remembers nothing that would make it refuse wrongly later.
#[test]
fn a_refusal_does_not_bring_an_old_row_back() {
    let nodes = Nodes::new();
    let (id, epoch) = nodes.move_on(1, true);
    let old = Epoch::new(epoch.get() - 1);
    for _ in 0..3 {
        let told = nodes.first.op(settle(id, old, succeeded()));
        assert_eq!(told, Err(Refusal::StaleAttempt));
    }
    assert_eq!(nodes.first.op(settle(id, epoch, succeeded())).unwrap().state, State::Succeeded);
}

#[test]
fn a_job_that_failed_elsewhere_can_be_run_again() {
    let nodes = Nodes::new();
    let job = nodes.grant(1, plain());
    let told = nodes.op_elsewhere(settle(job.id, job.epoch, failed_for_good()));
    assert_eq!(told.state, State::Failed);
    let new_job_id = JobId::from_u128(2);
    let told = nodes.first.op(Rerun { job_id: job.id, new_job_id, by: person("ann") });
    assert_eq!(told.unwrap().job_id, new_job_id);
}

#[test]
fn a_timer_that_saw_what_another_node_wrote_is_believed() {
    let nodes = Nodes::new();
    let (id, _) = nodes.move_on(1, true);
    let stored = nodes.stored(id);
    let told = nodes.first.op(dead(&stored, stored.version)).unwrap();
    assert_eq!((told.state, told.recorded), (State::Interrupted, false));
}

#[test]
fn what_is_asked_again_is_answered_by_what_is_stored() {
    let nodes = Nodes::new();
    // A cancel that was asked for here, and was carried out elsewhere.
    let job = nodes.grant(1, plain());
    assert_eq!(nodes.first.op(cancel(job.id, false)).unwrap().state, State::Running);
    nodes.op_elsewhere(cancel(job.id, true));
    let told = nodes.first.op(cancel(job.id, false));
    assert!(told.is_err() || told.unwrap().state == State::Cancelled);
    // A claim by name that was granted here, and ended elsewhere.
    let id = nodes.first.enqueue(2, plain());
    let (claim_id, trace_id) = (ClaimId::from_u128(7), None);
    let worker = worker("w1");
    let claim =
        Claim { job_id: id, claim_id, worker, trace_id, lease: LEASE, start: true, alone: false };
    let epoch = nodes.first.op(claim.clone()).unwrap().epoch;
    nodes.op_elsewhere(settle(id, epoch, succeeded()));
    let told = nodes.first.op(claim);
    assert!(told.is_err() || told.unwrap().state == State::Succeeded);
}

/// Whoever waits for a child that has ended would wait for ever: it is told of the end once.
#[test]
fn a_child_that_ended_elsewhere_is_not_waited_for() {
    let nodes = Nodes::new();
    let parent = nodes.grant(1, plain());
    let child = nodes.grant(2, NewJob { parent: Some(parent.id), ..plain() });
    nodes.op_elsewhere(settle(child.id, child.epoch, succeeded()));
    let told = nodes.first.op(wait_for(parent.id, parent.epoch, Some(child.id))).unwrap();
    assert_ne!(told.state, State::Waiting);
}

#[test]
fn a_parent_that_is_cancelled_elsewhere_gets_no_more_children() {
    let nodes = Nodes::new();
    let parent = nodes.grant(1, plain());
    nodes.op_elsewhere(cancel(parent.id, false));
    let child = NewJob { parent: Some(parent.id), ..plain() };
    assert_eq!(nodes.first.op(enqueue(2, child)), Err(Refusal::CancelRequested));
}

#[test]
fn a_session_is_renewed_with_what_is_stored() {
    let nodes = Nodes::new();
    let [kept, ended, cancelled] = [1, 2, 3].map(|number| nodes.grant(number, plain()));
    nodes.op_elsewhere(settle(ended.id, ended.epoch, succeeded()));
    nodes.op_elsewhere(cancel(cancelled.id, false));
    // What the node remembers of these jobs is part of the same commit.
    let renew = Write::RenewSession { worker: worker("w1"), lease: LEASE };
    let settles = settle(ended.id, ended.epoch, failed_for_good());
    let asked = cancel(cancelled.id, false);
    let told = nodes.first.commit(vec![write(settles), write(asked), renew]);
    assert!(told[0].is_err(), "it ended with another outcome");
    let Ok(Reply::Renewed { held, cancelled: to_cancel, .. }) = &told[2] else {
        panic!("{:?}", told[2]);
    };
    let mut held = held.clone();
    held.sort();
    assert_eq!(held, [kept.id, cancelled.id]);
    assert_eq!(to_cancel, &[cancelled.id]);
}
