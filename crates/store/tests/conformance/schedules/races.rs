//! Races: many fire the same slot at once, on one node or on several, and it is one job.

use std::sync::Arc;

use windlass_kernel::{Refusal, schedule::Action};
use windlass_store::{Store, Write};

use super::*;

for_each_backend!(one_slot_that_many_fire_is_one_job, a_backfill_and_a_timer_fill_each_slot_once);

for_each_lasting_backend!(a_new_schedule_that_many_put_is_one_schedule);

/// Commits each write by itself, all at once, on these stores in turn.
fn at_once(
    test: &TestStore,
    stores: &[Arc<dyn Store>],
    writes: Vec<Write>,
) -> Vec<Result<Scheduled, Refusal>> {
    let start = Arc::new(tokio::sync::Semaphore::new(0));
    let tasks: Vec<_> = writes
        .into_iter()
        .zip(stores.iter().cycle().cloned())
        .map(|(write, store)| {
            let start = start.clone();
            test.runtime.spawn(async move {
                let _go = start.acquire().await.unwrap();
                store.commit(vec![write].into()).await.unwrap().remove(0)
            })
        })
        .collect();
    start.add_permits(tasks.len());
    let told = tasks.into_iter().map(|task| test.runtime.block_on(task).unwrap());
    told.map(|reply| reply.map(scheduled)).collect()
}

/// The store, and on PostgreSQL a second node.
fn nodes(test: &TestStore, backend: Backend) -> Vec<Arc<dyn Store>> {
    let mut nodes = vec![test.store.clone()];
    if matches!(backend, Backend::Postgres) {
        let now = test.now();
        let clock: windlass_store::sqlite::Clock = Arc::new(move || now);
        nodes.push(test.home.open(clock, &test.runtime).unwrap());
    }
    nodes
}

fn one_slot_that_many_fire_is_one_job(backend: Backend) {
    let test = TestStore::new(backend);
    for round in 0..20u64 {
        put(&test, "nightly", every(MINUTE));
        let version = read(&test, "nightly").version;
        let nodes = nodes(&test, backend);
        let fire = || op("nightly", Action::Fire { version });
        let told = at_once(&test, &nodes, (0..16).map(|_| fire()).collect());
        let won: Vec<_> = told.iter().flatten().collect();
        assert_eq!(won.len(), 1, "{told:?}");
        assert_eq!(won[0].made.len(), 1);
        assert!(told.iter().filter_map(|it| it.as_ref().err()).all(|it| *it == Refusal::Outdated));
        assert_eq!(test.home.count("jobs"), round + 1);
        test.pass(MINUTE);
    }
    is_sound(&test);
}

fn a_backfill_and_a_timer_fill_each_slot_once(backend: Backend) {
    let test = TestStore::new(backend);
    let begin = test.now();
    put(&test, "nightly", every(MINUTE));
    for _ in 0..10 {
        let version = read(&test, "nightly").version;
        let (from, to) = (begin, test.now().plus(SECOND));
        test.pass(2 * SECOND);
        let nodes = nodes(&test, backend);
        let mut writes: Vec<Write> =
            (0..4).map(|_| op("nightly", Action::Backfill { from, to })).collect();
        writes.extend((0..4).map(|_| op("nightly", Action::Fire { version })));
        let told = at_once(&test, &nodes, writes);
        let made: usize = told.iter().flatten().map(|told| told.made.len()).sum();
        assert_eq!(made, 1, "{told:?}");
        test.pass(MINUTE - 2 * SECOND);
    }
    assert_eq!(test.home.count("jobs"), 10);
    is_sound(&test);
}

fn a_new_schedule_that_many_put_is_one_schedule(backend: Backend) {
    let test = TestStore::new(backend);
    for round in 0..10 {
        let schedule = format!("nightly-{round}");
        let nodes = nodes(&test, backend);
        let put = || op(&schedule, Action::Put(Box::new(every(MINUTE))));
        let told = at_once(&test, &nodes, (0..8).map(|_| put()).collect());
        assert!(told.iter().all(Result::is_ok), "{told:?}");
        assert_eq!(read(&test, &schedule).version, 1);
        assert_eq!(words(&test, &schedule), ["created"]);
    }
    is_sound(&test);
}
