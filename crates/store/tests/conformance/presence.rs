//! A worker that died with its process is known to be dead, and what it held can be taken from it.

use std::time::{Duration, Instant};

use windlass_kernel::{
    Jitter, State, WorkerId,
    ops::{Expire, Expiry},
};
use windlass_store::Write;

use crate::common::{Backend, LEASE, TestStore, plain, tenant, worker};

for_each_lasting_backend!(
    a_worker_is_dead_when_its_process_has_ended,
    whoever_is_vouched_for_again_is_not_dead,
    whoever_ended_well_is_not_dead,
    a_session_without_a_lease_is_only_a_name,
);

for_each_backend!(what_a_worker_holds_is_told_in_batches, a_store_that_is_open_is_well,);

/// Looks until somebody is dead. On PostgreSQL a lock has to be free for a while.
fn await_death(test: &TestStore) -> Vec<WorkerId> {
    let begun = Instant::now();
    loop {
        let dead = test.wait(test.store.dead_workers());
        if !dead.is_empty() || begun.elapsed() > Duration::from_secs(30) {
            return dead;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Nobody is dead, however long one looks.
fn check_nobody_is_dead(test: &TestStore, backend: Backend) {
    assert_eq!(test.wait(test.store.dead_workers()), []);
    if matches!(backend, Backend::Postgres) {
        std::thread::sleep(Duration::from_millis(2_500));
        assert_eq!(test.wait(test.store.dead_workers()), []);
    }
}

fn a_worker_is_dead_when_its_process_has_ended(backend: Backend) {
    let test = TestStore::new(backend);
    let job_id = test.enqueue(1, plain());
    let w1 = worker("w1");
    test.wait(test.store.vouch(&w1));
    assert_eq!(test.claim("w1", 1, 1).len(), 1);
    test.write(Write::RenewSession { worker: w1.clone(), lease: LEASE }).unwrap();
    // Nobody vouches for this one: its leases decide.
    test.enqueue(2, plain());
    test.claim("w2", 2, 1);
    check_nobody_is_dead(&test, backend);
    let test = test.reopen();
    assert_eq!(await_death(&test), std::slice::from_ref(&w1));
    let held = test.wait(test.store.held_by(&w1, 10));
    let version = test.job(job_id).version;
    assert_eq!(held, [(tenant(), job_id, version)]);
    let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
    test.op(Expire { job_id, version, what, jitter }).unwrap();
    assert_eq!(test.job(job_id).state, State::Interrupted);
    assert_eq!(test.wait(test.store.held_by(&w1, 10)), []);
    test.wait(test.store.stop_vouching(&w1));
    check_nobody_is_dead(&test, backend);
    let test = test.reopen();
    check_nobody_is_dead(&test, backend);
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

fn whoever_is_vouched_for_again_is_not_dead(backend: Backend) {
    let test = TestStore::new(backend);
    let w1 = worker("w1");
    test.wait(test.store.vouch(&w1));
    let test = test.reopen();
    assert_eq!(await_death(&test), std::slice::from_ref(&w1));
    test.wait(test.store.vouch(&w1));
    test.wait(test.store.vouch(&w1));
    check_nobody_is_dead(&test, backend);
    let test = test.reopen();
    assert_eq!(await_death(&test), [w1]);
}

fn whoever_ended_well_is_not_dead(backend: Backend) {
    let test = TestStore::new(backend);
    for name in ["w1", "w2"] {
        test.wait(test.store.vouch(&worker(name)));
    }
    test.wait(test.store.stop_vouching(&worker("w1")));
    // Nobody has ever heard of it.
    test.wait(test.store.stop_vouching(&worker("w3")));
    let test = test.reopen();
    assert_eq!(await_death(&test), [worker("w2")]);
}

fn a_session_without_a_lease_is_only_a_name(backend: Backend) {
    let test = TestStore::new(backend);
    let w1 = worker("w1");
    test.wait(test.store.vouch(&w1));
    let test = test.reopen();
    assert_eq!(test.wait(test.store.sessions()), []);
    assert_eq!(test.wait(test.store.held_by(&w1, 10)), []);
    let renew = Write::RenewSession { worker: w1, lease: LEASE };
    assert_eq!(test.write(renew).unwrap_err().code(), "NOT_FOUND");
    assert_eq!(test.wait(test.store.due(10)).next_at, None);
}

fn what_a_worker_holds_is_told_in_batches(backend: Backend) {
    let test = TestStore::new(backend);
    for number in 1..=5 {
        test.enqueue(number, plain());
    }
    let granted = test.claim("w1", 1, 4);
    test.claim("w2", 2, 1);
    let mut held = test.wait(test.store.held_by(&worker("w1"), 10));
    held.sort();
    let mut expected: Vec<_> =
        granted.iter().map(|it| (tenant(), it.job.id, it.job.version)).collect();
    expected.sort();
    assert_eq!(held, expected);
    assert_eq!(test.wait(test.store.held_by(&worker("w1"), 3)).len(), 3);
    assert_eq!(test.wait(test.store.held_by(&worker("w3"), 3)), []);
}

fn a_store_that_is_open_is_well(backend: Backend) {
    let test = TestStore::new(backend);
    test.wait(test.store.health());
    test.enqueue(1, plain());
    test.wait(test.store.health());
}
