//! Databases of earlier versions: each is kept as it was, and is read and finished by this one.
//!
//! `make bless` writes a database for the newest schema if there is none yet. One that is there is never
//! written again: it is what users have.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    time::Duration,
};

use common::*;
use windlass_kernel::{
    By, DlqId, IdempotencyKey, IdempotencyScope, Jitter, JobId, State, TaskId,
    ids::CorrelationKey,
    job::{Priority, Wait, WaitOn},
    ops::{
        Discard, Expire, Expiry, Idempotency, NewJob, NewTask, Outcome, Promote, PromoteWhen,
        Release, WaitFor, Wake, WakeBy,
    },
};
use windlass_store::{Store, Write};

/// The newest migration.
const NEWEST: u32 = 1;

fn golden(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/v{version}.db"))
}

/// The jobs of a golden database, and where each of them stands.
const JOBS: [(u128, State); 11] = [
    (1, State::Queued),
    (2, State::Scheduled),
    (3, State::Running),
    (4, State::Succeeded),
    (5, State::Partial),
    (6, State::RetryScheduled),
    (7, State::Waiting),
    (8, State::Failed),
    (9, State::Cancelled),
    (10, State::Dispatched),
    (11, State::Interrupted),
];

/// Makes the database of the newest schema, if it is to be made.
fn bless() {
    let path = golden(NEWEST);
    if env::var_os("WINDLASS_BLESS").is_some() && !path.exists() {
        let folder = tempfile::tempdir().unwrap();
        let made = folder.path().join("windlass.db");
        make(&made);
        fs::copy(made, &path).unwrap();
    }
    let version = TestStore::new().sql().pragma_query_value(None, "user_version", |row| row.get(0));
    assert_eq!(version, Ok(NEWEST), "NEWEST is not the newest");
}

/// One job in each state that a job can be left in.
fn make(path: &Path) {
    let test = TestStore::open(path).unwrap();
    test.pass(Duration::from_secs(1));
    let queued = NewJob {
        priority: Priority(500),
        idempotency: Idempotency::Key {
            scope: IdempotencyScope::new("orders").unwrap(),
            key: IdempotencyKey::new("order-1").unwrap(),
        },
        task: Some(NewTask { task_id: TaskId::new("invoice-1").unwrap(), may_rerun: true }),
        ..with_payload("{\"big\": 3544790567247868102,  \"spaced\": true}")
    };
    test.enqueue(1, queued);
    let at = test.now().plus(Duration::from_secs(3600));
    test.enqueue(2, NewJob { scheduled_at: Some(at), ..plain() });
    for number in 3..=11 {
        let text = if number == 3 { "x".repeat(1000) } else { number.to_string() };
        test.enqueue(number, with_payload(&format!("\"{text}\"")));
    }
    let granted = test.claim("w1", 1, 9);
    assert_eq!(granted.len(), 9);
    let epoch = granted[0].job.epoch;
    let id = JobId::from_u128;
    let result = Some(payload("{ \"sent\": 1 }"));
    let done = Outcome::Succeeded { result };
    let mut settle_4 = settle(id(4), epoch, done);
    settle_4.stats = Some(payload("{ \"ms\": 12 }"));
    test.op(settle_4).unwrap();
    let part = Outcome::Partial { result: None, remaining: payload("[1, 2]") };
    test.op(settle(id(5), epoch, part)).unwrap();
    test.op(settle(id(6), epoch, failed_for_now())).unwrap();
    test.op(WaitFor { job_id: id(7), epoch, by: By::worker(worker("w1")), wait: wait() }).unwrap();
    test.op(settle(id(8), epoch, failed_for_good())).unwrap();
    let reason = "nobody needs it".to_owned();
    let dlq_id = DlqId::of_job(id(8));
    test.op(Discard { dlq_id, reason, by: person("ann") }).unwrap();
    let enough = Outcome::Cancelled { reason: Some("enough".to_owned()) };
    test.op(settle(id(9), epoch, enough)).unwrap();
    test.op(Release { job_id: id(10), epoch, by: By::worker(worker("w1")) }).unwrap();
    expire(&test, id(11), Expiry::DeadSession);
    let mut slow = wanted("w2", 2, 1);
    slow.start = false;
    test.write(Write::Claim(slow)).unwrap();
}

fn expire(test: &TestStore, job_id: JobId, what: Expiry) {
    let (version, jitter) = (test.job(job_id).version, Jitter::NONE);
    test.op(Expire { job_id, version, what, jitter }).unwrap();
}

fn wait() -> Wait {
    let key = CorrelationKey::new("paid").unwrap();
    Wait { on: WaitOn::Signal(key), until: None }
}

#[test]
fn every_golden_database_is_read_and_finished() {
    bless();
    for version in 1..=NEWEST {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("windlass.db");
        let size = fs::copy(golden(version), &path).expect("it is there; else run `make bless`");
        assert!(size < 200 * 1024, "it is too large to keep");
        let test = TestStore::open(&path).unwrap();
        check_read(&test);
        finish(&test);
    }
}

/// Everything in it can be read, and says what it said.
fn check_read(test: &TestStore) {
    let counts = test.wait(test.store.counts());
    let counts: BTreeMap<&str, u64> = counts.iter().map(|it| (&*it.1, it.2)).collect();
    assert_eq!(counts.len(), JOBS.len());
    for (number, state) in JOBS {
        let id = JobId::from_u128(number);
        let job = test.job(id);
        assert_eq!(job.state, state, "job {number}");
        let events = test.wait(test.store.events(id));
        assert_eq!(events.len() as u64, job.version, "job {number}");
        let folded = windlass_kernel::fold(&events).unwrap();
        assert_eq!((folded.state, folded.settles), (job.state, job.settles), "job {number}");
    }
    let payload = |number| test.wait(test.store.payload(JobId::from_u128(number))).unwrap();
    assert_eq!(payload(1), "{\"big\": 3544790567247868102,  \"spaced\": true}");
    assert_eq!(payload(3).len(), 1002);
    let output = test.wait(test.store.outputs(JobId::from_u128(4))).remove(0);
    assert_eq!(output.result.as_deref(), Some("{ \"sent\": 1 }"));
    assert_eq!(output.stats.as_deref(), Some("{ \"ms\": 12 }"));
    let letter = test.job(JobId::from_u128(8)).dlq_id.unwrap();
    assert_eq!(test.wait(test.store.letter(letter)).unwrap().failure.code, "NO_SUCH_USER");
    assert_eq!(test.wait(test.store.approvals(letter)).len(), 1);
    assert!(!test.wait(test.store.feed(0, 1000)).is_empty());
}

/// Every job that is not at an end can be brought to one.
fn finish(test: &TestStore) {
    let id = JobId::from_u128;
    test.pass(Duration::from_secs(7200));
    let job = test.job(id(2));
    let when = PromoteWhen::Due { version: job.version };
    test.op(Promote { job_id: id(2), when }).unwrap();
    let key = CorrelationKey::new("paid").unwrap();
    let by = WakeBy::Signal { key, payload: None, by: person("ann") };
    test.op(Wake { job_id: id(7), by }).unwrap();
    for number in [3, 10] {
        expire(test, id(number), Expiry::Lease);
    }
    let granted = test.claim("w3", 3, 100);
    let mut ids: Vec<JobId> = granted.iter().map(|it| it.job.id).collect();
    ids.sort();
    assert_eq!(ids, [1, 2, 3, 6, 7, 10, 11].map(id));
    for granted in granted {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
    assert!(test.wait(test.store.open_jobs()).is_empty());
}
