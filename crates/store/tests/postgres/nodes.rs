//! Several nodes on one store, where they could get in each other's way.

use std::{sync::Arc, thread};

use windlass_store::{Store, read::Scope};

use crate::common::{
    Backend, Home, START, TestStore, claim_many, clock, enqueue, granted, plain, runtime, settle,
    succeeded, write,
};

#[test]
fn of_several_nodes_that_promote_each_row_is_taken_by_one_and_in_its_order() {
    const ROWS: u128 = 3_000;
    let test = TestStore::new(Backend::Postgres);
    let mut user = test.home.user();
    user.begin();
    for number in 1..=ROWS {
        user.put(&enqueue(number, plain()), test.now()).unwrap();
    }
    user.sql("COMMIT");
    let nodes: Vec<_> = (0..3).map(|_| test.home.clone()).map(promote).collect();
    nodes.into_iter().for_each(|node| node.join().unwrap());
    assert_eq!(test.home.count("inbox"), 0);
    assert_eq!(test.home.count("jobs"), u64::try_from(ROWS).unwrap());
    // A row that was taken twice would be a hit the second time.
    assert_eq!(test.home.count("inbox_results"), 0);
    let feed = test.wait(test.store.feed(&Scope::Every, 0, 10_000));
    let made: Vec<&str> = feed.events.iter().map(|event| &event.line[2..28]).collect();
    assert!(made.is_sorted(), "one node took rows that stood behind those of another");
}

/// Another node, which promotes until nothing is left.
fn promote(home: Arc<dyn Home>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let runtime = runtime(2);
        let now = Arc::new(START.into());
        let store: Arc<dyn Store> = home.open(clock(&now), &runtime).unwrap();
        while home.count("inbox") > 0 {
            runtime.block_on(store.commit(Arc::default())).unwrap();
        }
    })
}

/// A worker that hears nothing asks again, by way of another node, while the first claim is on its way.
#[test]
fn the_same_claim_at_two_nodes_at_once_gets_the_same_leases() {
    let test = TestStore::new(Backend::Postgres);
    let other = test.home.open(clock(&Arc::new(START.into())), &test.runtime).unwrap();
    for claim in 1..=40 {
        // There is nothing else that the second could take.
        let jobs = (1..=5).map(|number| write(enqueue(claim * 10 + number, plain()))).collect();
        assert!(test.commit(jobs).iter().all(Result::is_ok));
        let ask = |store: &Arc<dyn Store>| {
            let (store, claim) = (store.clone(), claim_many("w1", claim, 5));
            test.runtime.spawn(async move { store.commit(vec![claim].into()).await })
        };
        let [mut one, mut two] = [ask(&test.store), ask(&other)].map(|asked| {
            let replies = test.runtime.block_on(asked).unwrap().unwrap();
            let granted = granted(replies[0].as_ref().unwrap());
            granted.iter().map(|it| (it.job.id, it.job.epoch)).collect::<Vec<_>>()
        });
        one.sort();
        two.sort();
        assert_eq!((one.len(), &one), (5, &two), "claim {claim}");
    }
}

/// A duplicate of a claim comes late, by way of another node, when its job is done.
#[test]
fn the_same_claim_at_another_node_after_its_leases_gets_nothing() {
    let test = TestStore::new(Backend::Postgres);
    let other = test.another_node();
    for claim in 1..=5 {
        test.enqueue(claim * 10, plain());
        let job = test.claim("w1", claim, 1).remove(0).job;
        let (first, second) = if claim % 2 == 0 { (&test, &other) } else { (&other, &test) };
        assert!(first.op(settle(job.id, job.epoch, succeeded())).is_ok());
        let next = test.enqueue(claim * 10 + 1, plain());
        assert!(second.claim("w1", claim, 1).is_empty());
        assert!(first.claim("w1", claim, 1).is_empty());
        let got = second.claim("w1", claim + 100, 1).remove(0).job;
        assert_eq!(got.id, next);
        assert!(first.op(settle(got.id, got.epoch, succeeded())).is_ok());
    }
}
