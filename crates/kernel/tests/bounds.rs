//! What nobody can mean is refused, and the last value that someone can mean is not.

use std::time::Duration;

use windlass_kernel::{
    Actor, Answer, By, Epoch, IdempotencyKey, IdempotencyScope, JobId, Kind, Op, Payload,
    Principal, Queue, Refusal, Tag, TenantId, Timestamp, WorkerId,
    ids::ClaimId,
    job::Priority,
    ops::{Cancel, Claim, Enqueue, Idempotency, NewJob, Renew},
};
use windlass_testkit::MapStore;

type Change = fn(&mut NewJob);

const DAY: Duration = Duration::from_secs(86_400);
const TICK: Duration = Duration::from_millis(1);

fn enqueue(change: impl FnOnce(&mut NewJob)) -> Result<Answer, Refusal> {
    enqueue_in(&mut MapStore::default(), change)
}

fn enqueue_in(store: &mut MapStore, change: impl FnOnce(&mut NewJob)) -> Result<Answer, Refusal> {
    let payload = Payload::parse("{}", 10).expect("an object");
    let mut new = Box::new(NewJob::new(Kind::new("mail").expect("a name"), payload));
    change(&mut new);
    let (job_id, tenant) = (JobId::from_u128(1), TenantId::new("acme").expect("a name"));
    commit(store, Enqueue { job_id, tenant, new, random: 1, by: ann() })
}

fn commit(store: &mut MapStore, op: impl Into<Op>) -> Result<Answer, Refusal> {
    store.commit(&op.into(), Timestamp::MIN)
}

fn ann() -> By {
    Actor::User(Principal::new("ann").expect("a name")).into()
}

/// Refused with the name of this field.
fn refused(field: &str, result: &Result<Answer, Refusal>) {
    match result {
        Err(Refusal::Invalid { field: named, .. }) => assert_eq!(*named, field),
        other => panic!("{field} was answered with {other:?}"),
    }
}

#[test]
fn a_new_job_is_bounded() {
    let limits: [(&str, Change, Change); 10] = [
        ("priority", |new| new.priority = Priority(1_000), |new| new.priority = Priority(1_001)),
        ("priority", |new| new.priority = Priority(-1_000), |new| new.priority = Priority(-1_001)),
        ("max_retries", |new| new.max_retries = 10_000, |new| new.max_retries = 10_001),
        ("max_interruptions", |new| new.max_interruptions = 1, |new| new.max_interruptions = 0),
        ("tags", |new| new.tags = tags(32), |new| new.tags = tags(33)),
        (
            "timeout_ms",
            |new| new.timeout = Some(366 * DAY),
            |new| new.timeout = Some(366 * DAY + TICK),
        ),
        ("timeout_ms", |new| new.timeout = Some(TICK), |new| new.timeout = Some(Duration::ZERO)),
        (
            "timeout_ms",
            |new| new.timeout = Some(2 * TICK),
            |new| new.timeout = Some(TICK + Duration::from_micros(500)),
        ),
        (
            "heartbeat_timeout_ms",
            |new| new.heartbeat_timeout = Some(366 * DAY),
            |new| new.heartbeat_timeout = Some(366 * DAY + TICK),
        ),
        (
            "schedule_to_start_ms",
            |new| new.schedule_to_start = Some(366 * DAY),
            |new| new.schedule_to_start = Some(Duration::ZERO),
        ),
    ];
    for (field, last, beyond) in limits {
        assert!(enqueue(last).is_ok(), "the last {field} was refused");
        refused(field, &enqueue(beyond));
    }
}

fn tags(count: usize) -> Vec<Tag> {
    (0..count).map(|number| Tag::new(format!("t{number}")).expect("a name")).collect()
}

/// The server says that a job is its own by its key, and nobody else can.
#[test]
fn names_of_the_servers_own_are_for_its_own_jobs() {
    let key = || IdempotencyKey::new("k").expect("a key");
    let scope = |name| IdempotencyScope::new(name).expect("a scope");
    let callers = [
        Idempotency::OwnId,
        Idempotency::Key { scope: scope("default"), key: key() },
        Idempotency::Run { key: key() },
        Idempotency::Slot { key: key() },
    ];
    let kind = || Kind::new("windlass.webhook").expect("a name");
    let queue = || Queue::new("windlass.webhooks").expect("a name");
    for idempotency in callers {
        let own = |change: fn(&mut NewJob)| {
            enqueue(|new| {
                new.idempotency = idempotency.clone();
                new.kind = kind();
                new.queue = queue();
                change(new);
            })
        };
        refused("kind", &own(|_| {}));
        refused("kind", &own(|new| new.queue = Queue::new("default").expect("a name")));
        refused("queue", &own(|new| new.kind = Kind::new("mail").expect("a name")));
        let near = own(|new| {
            new.kind = Kind::new("windlass").expect("a name");
            new.queue = Queue::new("my.windlass.queue").expect("a name");
        });
        assert!(near.is_ok(), "{near:?}");
    }
    let server = || Idempotency::Server { key: key() };
    let made = enqueue(|new| (new.idempotency, new.kind, new.queue) = (server(), kind(), queue()));
    assert!(made.is_ok(), "{made:?}");
    refused("kind", &enqueue(|new| new.idempotency = server()));
    for name in ["_windlass", "_job", "windlass.webhooks"] {
        let key = Idempotency::Key { scope: scope(name), key: key() };
        refused("idempotency_scope", &enqueue(|new| new.idempotency = key));
    }
}

#[test]
fn a_deadline_lies_after_the_time_the_job_is_due() {
    let at = |micros| Some(Timestamp::from_micros(micros));
    refused("deadline_at", &enqueue(|new| new.deadline_at = at(0)));
    assert!(enqueue(|new| new.deadline_at = at(1)).is_ok());
    let scheduled = |due, deadline| {
        enqueue(|new| (new.scheduled_at, new.deadline_at) = (at(due), at(deadline)))
    };
    refused("deadline_at", &scheduled(5, 5));
    assert!(scheduled(5, 6).is_ok());
}

#[test]
fn a_lease_is_bounded() {
    let claim = |lease: Duration| {
        let mut store = MapStore::default();
        enqueue_in(&mut store, |_| {}).expect("it is new");
        let (job_id, claim_id) = (JobId::from_u128(1), ClaimId::from_u128(1));
        let worker = WorkerId::new("w1").expect("a name");
        let (trace_id, start, alone) = (None, false, false);
        commit(&mut store, Claim { job_id, claim_id, worker, trace_id, lease, start, alone })
    };
    assert!(claim(Duration::from_millis(100)).is_ok());
    assert!(claim(DAY).is_ok());
    refused("lease_ms", &claim(Duration::from_millis(99)));
    refused("lease_ms", &claim(DAY + TICK));
}

#[test]
fn a_report_of_progress_is_bounded_and_fenced() {
    let mut store = MapStore::default();
    enqueue_in(&mut store, |_| {}).expect("it is new");
    let (job_id, claim_id) = (JobId::from_u128(1), ClaimId::from_u128(1));
    let worker = WorkerId::new("w1").expect("a name");
    let (trace_id, lease, start, alone) = (None, DAY, true, false);
    let by = By::worker(worker.clone());
    let claim = Claim { job_id, claim_id, worker, trace_id, lease, start, alone };
    let epoch = commit(&mut store, claim).expect("it is queued").epoch;
    let mut report = |epoch, bytes: usize, heartbeat| {
        let text = format!("\"{}\"", "x".repeat(bytes - 2));
        let progress = Payload::parse(&text, usize::MAX).ok();
        let before = store.clone();
        let by = by.clone();
        let answer = commit(&mut store, Renew { job_id, epoch, by, lease, heartbeat, progress });
        assert_eq!(store.events, before.events, "it is not history");
        let said = store.progress.get(&job_id).map(|it| (it.epoch, it.value.as_str().len()));
        (answer, said)
    };
    let last = Renew::PROGRESS_BYTES_MAX;
    let stale = Epoch::new(epoch.get() + 1);
    assert_eq!(report(stale, 10, true), (Err(Refusal::StaleAttempt), None));
    assert_eq!(report(stale, last + 1, true), (Err(Refusal::StaleAttempt), None));
    let (answer, said) = report(epoch, last, true);
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(said, Some((epoch, last)));
    let (answer, said) = report(epoch, last + 1, true);
    refused("progress", &answer);
    assert_eq!(said, Some((epoch, last)), "the last one stands");
    assert_eq!(report(epoch, 2, false).1, Some((epoch, 2)), "a heartbeat is not needed");
}

#[test]
fn a_grace_period_is_bounded() {
    let cancel = |grace: Duration| {
        let mut store = MapStore::default();
        enqueue_in(&mut store, |_| {}).expect("it is new");
        let (job_id, force, reason) = (JobId::from_u128(1), false, None);
        commit(&mut store, Cancel { job_id, force, grace, reason, by: ann() })
    };
    assert!(cancel(DAY).is_ok());
    refused("grace_ms", &cancel(DAY + TICK));
}
