//! A process that ends is known to be dead long before its leases run out; one that is frozen is not.

use std::{
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_kernel::{
    Jitter, State,
    ops::{Expire, Expiry},
};
use windlass_store::{Commit as _, Watch as _, postgres::Postgres};

use crate::common::{
    Backend, Killed, START, TestStore, child, child_home, clock, granted, plain,
    postgres::SchemaHome, runtime, wait_to_be_killed, wanted, worker,
};

/// Another node of the same store.
fn node(address: &str) -> (Postgres, tokio::runtime::Runtime) {
    let runtime = runtime(2);
    let mut options = SchemaHome::at(address).options.clone();
    options.clock = Some(clock(&Arc::new(START.into())));
    let store = runtime.block_on(Postgres::open(options)).unwrap();
    (store, runtime)
}

/// In a process of its own: vouches for a worker, claims a job and waits to be killed.
#[test]
fn child_claims_and_waits() {
    let Some(home) = child_home(Backend::Postgres) else { return };
    let (store, runtime) = node(&home.address());
    runtime.block_on(store.vouch(&worker("w1"))).unwrap();
    let claim = windlass_store::Write::Claim(wanted("w1", 7, 1));
    let commit = store.commit(vec![claim].into());
    let replies = runtime.block_on(commit).unwrap();
    assert_eq!(granted(replies[0].as_ref().unwrap()).len(), 1);
    wait_to_be_killed();
}

/// Looks until a worker is proven dead, and says how long that took.
fn await_death(
    store: &Postgres,
    runtime: &tokio::runtime::Runtime,
    most: Duration,
) -> Option<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < most {
        if runtime.block_on(store.dead_workers()).unwrap() == [worker("w1")] {
            return Some(begun.elapsed());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    None
}

#[test]
fn a_process_that_is_killed_is_dead_long_before_its_leases_run_out() {
    let test = TestStore::new(Backend::Postgres);
    let id = test.enqueue(1, plain());
    let (store, runtime) = node(&test.home.address());
    let owner =
        Killed::start(child("presence::child_claims_and_waits", test.home.address().as_ref()));
    assert_eq!(test.job(id).state, State::Running);
    assert_eq!(runtime.block_on(store.dead_workers()).unwrap(), []);
    let is_taken = runtime.block_on(store.vouch(&worker("w1"))).unwrap_err();
    assert_eq!(is_taken.code(), "UNAVAILABLE");
    drop(owner);
    let took = await_death(&store, &runtime, Duration::from_secs(30)).expect("it is dead");
    println!("known to be dead after {took:?}");
    let held = runtime.block_on(store.held_by(&worker("w1"), 10)).unwrap();
    assert_eq!(held.len(), 1);
    let (what, jitter) = (Expiry::DeadSession, Jitter::NONE);
    let (_, job_id, version) = held[0].clone();
    test.op(Expire { job_id, version, what, jitter }).unwrap();
    let job = test.job(id);
    assert!(job.lease.is_none() && job.state == State::Interrupted, "{:?}", job.state);
    // Whoever runs the worker next may vouch for it.
    runtime.block_on(store.vouch(&worker("w1"))).unwrap();
    assert_eq!(test.claim("w1", 8, 1)[0].job.id, id);
    assert_eq!(runtime.block_on(store.dead_workers()).unwrap(), []);
    assert!(test.home.check().is_clean());
}

#[test]
fn a_process_that_is_frozen_is_not_dead_and_its_lease_decides() {
    let test = TestStore::new(Backend::Postgres);
    let id = test.enqueue(1, plain());
    let (store, runtime) = node(&test.home.address());
    let owner =
        Killed::start(child("presence::child_claims_and_waits", test.home.address().as_ref()));
    let signal = |name: &str| {
        let status = Command::new("kill").args([name, &owner.id().to_string()]).status();
        assert!(status.unwrap().success());
    };
    signal("-STOP");
    assert_eq!(await_death(&store, &runtime, Duration::from_secs(4)), None);
    let job = test.job(id);
    let (job_id, version, jitter) = (id, job.version, Jitter::NONE);
    let early = test.op(Expire { job_id, version, what: Expiry::Lease, jitter }).unwrap_err();
    assert_eq!(early.code(), "NOT_DUE");
    test.pass(Duration::from_secs(61));
    test.op(Expire { job_id, version, what: Expiry::Lease, jitter }).unwrap();
    signal("-CONT");
    assert_eq!(test.job(id).state, State::Interrupted);
}

#[test]
fn a_connection_that_breaks_is_no_death() {
    let test = TestStore::new(Backend::Postgres);
    let (store, runtime) = node(&test.home.address());
    runtime.block_on(store.vouch(&worker("w1"))).unwrap();
    let other = node(&test.home.address());
    let shell = SchemaHome::at(&test.home.address()).sql();
    for _ in 0..3 {
        let ended = shell.query(
            "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN sessions ON objid = id::oid
             WHERE locktype = 'advisory' AND worker = 'w1'
                AND classid = (1464615251 + 'meta'::regclass::oid::bigint + 5)::oid",
            &[],
        );
        assert_eq!(ended.len(), 1);
        assert_eq!(await_death(&other.0, &other.1, Duration::from_millis(2_500)), None);
    }
    runtime.block_on(store.stop_vouching(&worker("w1"))).unwrap();
    assert_eq!(await_death(&other.0, &other.1, Duration::from_millis(2_500)), None);
}
