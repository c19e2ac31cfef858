//! What an op says beside the job: rows of tasks and attempts, and what follows for other jobs.

use std::time::Duration;

use windlass_kernel::{
    Actor, Answer, AttemptState, By, Current, DlqId, Epoch, Failure, FollowUp, IdempotencyKey,
    IdempotencyScope, Jitter, JobId, Kind, LetterState, Op, Payload, Principal, Refusal, Spec,
    State, TaskId, TenantId, Timestamp, WorkerId, decide,
    ids::ClaimId,
    job::{Origin, Priority, ScheduleType},
    ops::{
        ApproveDiscard, Cancel, Claim, Discard, Enqueue, Idempotency, NewJob, NewTask, Outcome,
        Requeue, Rerun, Settle,
    },
};
use windlass_testkit::MapStore;

const JOB: JobId = JobId::from_u128(1);
const PARENT: JobId = JobId::from_u128(2);
const AGAIN: JobId = JobId::from_u128(3);

/// A store with one job, and time that passes when an op needs it to.
struct Scene {
    store: MapStore,
    now: Timestamp,
    claims: u128,
}

impl Scene {
    fn with(change: impl FnOnce(&mut NewJob)) -> Self {
        let payload = Payload::parse("{}", 10).expect("an object");
        let mut new = NewJob::new(Kind::new("mail").expect("a name"), payload);
        change(&mut new);
        let mut scene = Self { store: MapStore::default(), now: Timestamp::MIN, claims: 0 };
        if let Some(parent) = new.parent {
            scene.enqueue(parent, NewJob::new(new.kind.clone(), new.payload.clone()));
        }
        scene.enqueue(JOB, new);
        scene
    }

    fn enqueue(&mut self, job_id: JobId, new: NewJob) {
        let (tenant, by) = (tenant(), user("ann"));
        let enqueue = Enqueue { job_id, tenant, new: Box::new(new), random: 7, by };
        self.commit(&enqueue.into()).expect("it is new");
    }

    fn commit(&mut self, op: &Op) -> Result<Answer, Refusal> {
        self.store.commit(op, self.now)
    }

    /// A worker claims the job when it can, and starts it if it is to.
    fn claim(&mut self, start: bool) {
        self.claims += 1;
        self.now = self.now.max(self.store.jobs[&JOB].claim_at().expect("it can be claimed"));
        let (claim_id, worker) = (ClaimId::from_u128(self.claims), worker());
        let (lease, alone) = (Duration::from_secs(30), false);
        let claim = Claim { job_id: JOB, claim_id, worker, trace_id: None, lease, start, alone };
        self.commit(&claim.into()).expect("it can be claimed");
    }

    fn settle(&mut self, outcome: Outcome, stats: Option<&str>) -> State {
        let epoch = self.store.jobs[&JOB].epoch;
        let stats = stats.map(|stats| Payload::parse(stats, 100).expect("it is JSON"));
        let (by, jitter) = (By::worker(worker()), Jitter::NONE);
        let settle = Settle { job_id: JOB, epoch, by, outcome, stats, jitter };
        self.commit(&settle.into()).expect("it runs").state
    }

    fn fail(&mut self) -> State {
        self.settle(Outcome::Failed(Failure::transient("SMTP_BUSY", "try later")), None)
    }

    fn cancel(&mut self, force: bool) {
        let (grace, reason, by) = (Cancel::GRACE_DEFAULT, None, user("ann"));
        let cancel = Cancel { job_id: JOB, force, grace, reason, by };
        self.commit(&cancel.into()).expect("it can be cancelled");
    }

    /// The next attempt of the task, as its row has it.
    fn next_attempt(&self) -> Option<u32> {
        let key = (tenant(), self.store.jobs[&JOB].spec.task_id.clone());
        self.store.tasks.get(&key).copied()
    }

    /// State, start and end of an attempt.
    fn attempt(&self, number: u32) -> Option<(AttemptState, bool, bool)> {
        let attempts = self.store.attempts.values();
        let attempt = attempts.into_iter().find(|attempt| attempt.attempt == number)?;
        Some((attempt.state, attempt.started_at.is_some(), attempt.finished_at.is_some()))
    }
}

fn tenant() -> TenantId {
    TenantId::new("acme").expect("a name")
}

fn worker() -> WorkerId {
    WorkerId::new("w1").expect("a name")
}

fn user(name: &str) -> By {
    Actor::User(Principal::new(name).expect("a name")).into()
}

fn task(new: &mut NewJob) {
    let task_id = TaskId::new("nightly").expect("a name");
    new.task = Some(NewTask { task_id, may_rerun: true });
}

fn parent(new: &mut NewJob) {
    new.parent = Some(PARENT);
}

#[test]
fn a_task_that_was_named_knows_its_next_attempt() {
    let mut scene = Scene::with(task);
    assert_eq!(scene.next_attempt(), Some(2));
    scene.claim(true);
    assert_eq!(scene.next_attempt(), Some(2));
    scene.fail();
    assert_eq!(scene.next_attempt(), Some(2));
    scene.claim(true);
    assert_eq!(scene.next_attempt(), Some(3));
}

#[test]
fn an_op_that_begins_no_attempt_leaves_the_task_alone() {
    let scene = Scene::with(task);
    let current = Current { job: scene.store.jobs.get(&JOB), ..Current::default() };
    let (claim_id, worker, trace_id) = (ClaimId::from_u128(1), worker(), None);
    let (lease, start, alone) = (Duration::from_secs(30), true, false);
    let claim = Claim { job_id: JOB, claim_id, worker, trace_id, lease, start, alone };
    let done = decide(&current, &claim.into(), scene.now).expect("it can be claimed");
    assert_eq!(done.task, None);
}

#[test]
fn a_job_that_named_no_task_has_no_task_row() {
    let mut scene = Scene::with(|_| {});
    scene.claim(true);
    scene.fail();
    scene.claim(true);
    assert_eq!(scene.store.tasks.len(), 0);
}

#[test]
fn an_attempt_is_planned_then_runs_then_ends() {
    let mut scene = Scene::with(|_| {});
    assert_eq!(scene.attempt(1), None);
    scene.claim(false);
    assert_eq!(scene.attempt(1), Some((AttemptState::Planned, false, false)));
    let mut scene = Scene::with(|_| {});
    scene.claim(true);
    assert_eq!(scene.attempt(1), Some((AttemptState::Running, true, false)));
    scene.fail();
    assert_eq!(scene.attempt(1), Some((AttemptState::Failed, true, true)));
    assert_eq!(scene.attempt(2), None);
    scene.claim(true);
    assert_eq!(scene.attempt(2), Some((AttemptState::Running, true, false)));
    scene.settle(Outcome::Succeeded { result: None }, Some("{\"rows\":3}"));
    assert_eq!(scene.attempt(1), Some((AttemptState::Failed, true, true)));
    assert_eq!(scene.attempt(2), Some((AttemptState::Succeeded, true, true)));
    let last = scene.store.attempts.values().last().expect("there are two");
    assert_eq!(last.stats.as_ref().map(Payload::as_str), Some("{\"rows\":3}"));
    assert_eq!(last.failure, None);
}

#[test]
fn a_cancel_does_not_change_an_attempt_that_failed() {
    let mut scene = Scene::with(|_| {});
    scene.claim(true);
    scene.fail();
    scene.cancel(false);
    assert_eq!(scene.attempt(1), Some((AttemptState::Failed, true, true)));
}

#[test]
fn the_end_of_a_child_is_told_to_its_parent_once() {
    let mut scene = Scene::with(parent);
    scene.claim(true);
    scene.fail();
    assert_eq!(scene.store.follow_ups, []);
    scene.claim(true);
    let state = scene.settle(Outcome::Succeeded { result: None }, None);
    let ended = FollowUp::ChildEnded { parent: PARENT, child: JOB, state };
    assert_eq!(scene.store.follow_ups, [ended]);
}

#[test]
fn the_end_of_a_job_without_a_parent_is_told_to_nobody() {
    let mut scene = Scene::with(|_| {});
    scene.claim(true);
    scene.settle(Outcome::Succeeded { result: None }, None);
    assert_eq!(scene.store.follow_ups, []);
}

#[test]
fn children_are_cancelled_with_the_first_cancel_and_only_then() {
    let children = [FollowUp::CancelChildren { parent: JOB }];
    let mut asked = Scene::with(|_| {});
    asked.claim(true);
    asked.cancel(false);
    assert_eq!(asked.store.follow_ups, children);
    asked.cancel(false);
    asked.settle(Outcome::Cancelled { reason: None }, None);
    assert_eq!(asked.store.follow_ups, children);

    let mut at_once = Scene::with(|_| {});
    at_once.cancel(false);
    assert_eq!(at_once.store.follow_ups, children);

    let mut unasked = Scene::with(|_| {});
    unasked.claim(true);
    unasked.settle(Outcome::Cancelled { reason: None }, None);
    assert_eq!(unasked.store.follow_ups, children);
}

#[test]
fn a_new_job_brings_its_payload() {
    let scene = Scene::with(|_| {});
    assert_eq!(scene.store.payloads[&JOB].as_str(), "{}");
}

#[test]
fn a_job_may_name_itself_as_its_task() {
    let scene = Scene::with(|new| {
        let task_id = TaskId::of_job(JOB);
        new.task = Some(NewTask { task_id, may_rerun: true });
    });
    assert_eq!(scene.store.jobs[&JOB].attempt, 1);
}

#[test]
fn a_rerun_asks_for_the_same_and_stands_on_its_own() {
    let mut scene = Scene::with(|new| {
        task(new);
        parent(new);
        new.schedule_type = ScheduleType::Cron;
        new.scheduled_at = Some(Timestamp::from_micros(5_000_000));
        new.deadline_at = Some(Timestamp::from_micros(90_000_000));
        new.idempotency = Idempotency::Run { key: IdempotencyKey::new("k").expect("a key") };
        new.priority = Priority(7);
        new.timeout = Some(Duration::from_secs(9));
    });
    scene.cancel(false);
    scene.now = Timestamp::from_micros(60_000_000);
    let rerun = Rerun { job_id: JOB, new_job_id: AGAIN, by: user("bob") };
    scene.commit(&rerun.into()).expect("it was cancelled");
    let (old, new) = (&scene.store.jobs[&JOB].spec, &scene.store.jobs[&AGAIN].spec);
    let expected = Spec {
        schedule_type: ScheduleType::At,
        scheduled_at: None,
        due_at: scene.now,
        deadline_at: None,
        idempotency_scope: IdempotencyScope::own_id(),
        idempotency_key: IdempotencyKey::of_job(AGAIN),
        parent: None,
        origin: Origin::Rerun(JOB),
        created_at: scene.now,
        ..old.as_ref().clone()
    };
    assert_eq!(**new, expected);
    assert_eq!(scene.store.jobs[&AGAIN].attempt, 2);
    assert_eq!(scene.store.payloads[&AGAIN], scene.store.payloads[&JOB]);
}

#[test]
fn a_job_that_named_no_task_gives_its_own_to_its_rerun() {
    let mut scene = Scene::with(|new| new.max_retries = 1);
    scene.claim(true);
    scene.fail();
    scene.claim(true);
    scene.fail();
    // The caller may know nothing of a task that has no row: the job itself says where to go on.
    let current = Current { job: scene.store.jobs.get(&JOB), ..Current::default() };
    let rerun = Rerun { job_id: JOB, new_job_id: AGAIN, by: user("bob") };
    let done = decide(&current, &rerun.into(), scene.now).expect("it failed");
    assert_eq!((done.job.attempt, done.job.spec.task_given), (3, true));
    assert_eq!(done.job.spec.task_id, TaskId::of_job(JOB));
}

#[test]
fn a_letter_tells_who_closed_it_and_when() {
    let dlq_id = DlqId::of_job(JOB);
    let failed = || {
        let mut scene = Scene::with(|new| new.max_retries = 0);
        scene.claim(true);
        scene.fail();
        scene
    };
    let mut discarded = failed();
    let discard = Discard { dlq_id, reason: "a test".to_owned(), by: user("ann") };
    discarded.commit(&discard.into()).expect("it is open");
    let letter = &discarded.store.letters[&dlq_id];
    assert_eq!(letter.discard_requested_by, Some(Principal::new("ann").expect("a name")));
    assert_eq!(letter.discard_reason.as_deref(), Some("a test"));
    assert_eq!(letter.closed_at, None);
    discarded.commit(&ApproveDiscard { dlq_id, by: user("bob") }.into()).expect("two people");
    assert_eq!(discarded.store.letters[&dlq_id].closed_at, Some(discarded.now));
    let said: Vec<_> = discarded.store.approvals.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(said, ["a test", "a test"]);

    // A requeue of the letter and a re-run of the job do the same to both.
    let requeue = Requeue { dlq_id, new_job_id: AGAIN, payload: None, by: user("ann") };
    let rerun = Rerun { job_id: JOB, new_job_id: AGAIN, by: user("ann") };
    for op in [requeue.into(), rerun.into()] {
        let mut requeued = failed();
        requeued.commit(&op).expect("it is open");
        let letter = &requeued.store.letters[&dlq_id];
        assert_eq!(letter.state, LetterState::Requeued, "{op:?}");
        assert_eq!((letter.requeued_as, letter.closed_at), (Some(AGAIN), Some(requeued.now)));
        assert_eq!(requeued.store.jobs[&AGAIN].spec.origin, Origin::Requeued(dlq_id));
    }
}

#[test]
fn a_settle_is_told_again_what_it_was_told_whatever_came_after() {
    let mut scene = Scene::with(|new| new.max_retries = 1);
    let outcome = || Outcome::Failed(Failure::transient("SMTP_BUSY", "try later"));
    let settle = |scene: &mut Scene, epoch| {
        let (by, stats, jitter) = (By::worker(worker()), None, Jitter::NONE);
        let epoch = Epoch::new(epoch);
        let settle = Settle { job_id: JOB, epoch, by, outcome: outcome(), stats, jitter };
        scene.commit(&settle.into()).expect("it runs, or it was settled before")
    };
    let again = |answer: &Answer| Answer { recorded: true, ..answer.clone() };
    scene.claim(true);
    let first = settle(&mut scene, 1);
    assert_eq!((first.state, first.dlq_id), (State::RetryScheduled, None));
    assert!(first.next_retry_at.is_some());
    assert_eq!(settle(&mut scene, 1), again(&first));
    scene.claim(true);
    scene.cancel(false);
    assert_eq!(settle(&mut scene, 1), again(&first), "the job runs again, and is to be cancelled");
    let second = settle(&mut scene, 2);
    assert_eq!((second.state, second.dlq_id), (State::Failed, Some(DlqId::of_job(JOB))));
    assert_eq!(settle(&mut scene, 2), again(&second));
    assert_eq!(settle(&mut scene, 1), again(&first), "the job has a letter now");
}

#[test]
fn a_reason_is_bounded() {
    for (length, is_taken) in [(4096, true), (4097, false)] {
        let mut scene = Scene::with(|_| {});
        let (grace, by) = (Cancel::GRACE_DEFAULT, user("ann"));
        let reason = Some("x".repeat(length));
        let cancel = Cancel { job_id: JOB, force: false, grace, reason, by };
        assert_eq!(scene.commit(&cancel.into()).is_ok(), is_taken, "{length} bytes");
    }
}

/// A delivery of a webhook, say. Whoever may enqueue could silence it otherwise, by naming it as a task.
#[test]
fn a_caller_does_not_take_over_from_a_job_of_the_servers_own() {
    let mut scene = Scene::with(|new| {
        new.kind = Kind::new("windlass.webhook").expect("a name");
        let key = IdempotencyKey::new("delivery").expect("a key");
        new.idempotency = Idempotency::Server { key };
    });
    scene.claim(true);
    scene.settle(Outcome::Failed(Failure::permanent("GONE", "it is gone")), None);
    let payload = Payload::parse("{}", 10).expect("an object");
    let mut new = NewJob::new(Kind::new("mail").expect("a name"), payload);
    new.task = Some(NewTask { task_id: TaskId::of_job(JOB), may_rerun: true });
    scene.enqueue(AGAIN, new);
    let dlq_id = DlqId::of_job(JOB);
    assert_eq!(scene.store.jobs[&AGAIN].spec.origin, Origin::Enqueued);
    assert_eq!(scene.store.letters[&dlq_id].state, LetterState::Open);
    let (force, grace, by) = (true, Cancel::GRACE_DEFAULT, user("ann"));
    let cancel = Cancel { job_id: AGAIN, force, grace, reason: None, by };
    scene.commit(&cancel.into()).expect("it can be cancelled");
    let (new_job_id, by) = (JobId::from_u128(4), user("ann"));
    let requeue = Requeue { dlq_id, new_job_id, payload: None, by };
    scene.commit(&requeue.into()).expect("it is still there to be requeued");
    assert_eq!(scene.store.letters[&dlq_id].requeued_as, Some(new_job_id));
}
