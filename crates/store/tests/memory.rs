//! The store in memory: what it shares with a file is part of conformance, and the rest is here.
#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "memory/inline.rs"]
mod inline;

use std::{
    sync::{Arc, atomic::AtomicI64},
    thread,
    time::{Duration, Instant},
};

use common::*;
use rusqlite::TransactionBehavior;
use windlass_kernel::{JobId, ops::NewJob};
use windlass_store::{
    Commit as _, ReadJobs as _,
    check::Invariant,
    read::{JobFilter, PageFrom},
    sqlite::{MemoryOptions, Sqlite, enqueue_in},
};

fn in_memory(inline: bool) -> Sqlite {
    let clock = clock(&Arc::new(AtomicI64::new(START)));
    Sqlite::in_memory(MemoryOptions { clock, ticks: None, inline }).unwrap()
}

#[test]
fn each_store_is_one_of_its_own_and_leaves_nothing() {
    let runtime = runtime(1);
    let (one, other) = (in_memory(false), in_memory(false));
    let enqueued = one.commit(vec![write(enqueue(1, plain()))].into());
    runtime.block_on(enqueued).unwrap().remove(0).unwrap();
    assert!(runtime.block_on(one.job(&Scope::Every, JobId::from_u128(1))).unwrap().is_some());
    assert!(runtime.block_on(other.job(&Scope::Every, JobId::from_u128(1))).unwrap().is_none());
    // It has no file, and what is sorted gets none.
    let connection = one.connect().unwrap();
    assert_eq!(connection.path(), Some(""));
    for (setting, memory) in [("journal_mode", "memory"), ("temp_store", "2")] {
        let sql = format!("SELECT CAST({setting} AS TEXT) FROM pragma_{setting}");
        let found: String = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(found, memory, "{setting}");
    }
}

/// How many write and how many read at once, and how often each.
const WRITERS: u128 = 6;
const READERS: usize = 6;
const COMMITS: u128 = 30;

/// Whoever reads locks out whoever writes, and the other way round. Nobody is told, and nobody waits long.
#[test]
fn many_readers_and_writers_at_once_hear_of_no_lock() {
    let test = TestStore::new(Backend::Memory);
    let longest = |waits: Vec<Duration>| waits.into_iter().max().unwrap();
    let mut tasks = Vec::new();
    for writer in 1..=WRITERS {
        let store = test.store.clone();
        tasks.push(test.runtime.spawn(async move {
            let mut waits = Vec::new();
            for commit in 1..=COMMITS {
                let id = |number| writer << 64 | commit << 32 | number;
                let writes = (1..=5).map(|number| write(enqueue(id(number), plain())));
                let mut writes: Vec<_> = writes.collect();
                writes.push(claim_many(&format!("w{writer}"), id(0), 3));
                let since = Instant::now();
                let replies = store.commit(writes.into()).await.unwrap();
                waits.push(since.elapsed());
                replies.into_iter().for_each(|reply| drop(reply.unwrap()));
            }
            longest(waits)
        }));
    }
    for reader in 0..READERS {
        let store = test.store.clone();
        tasks.push(test.runtime.spawn(async move {
            let (mut waits, mut seen) = (Vec::new(), 0);
            while seen < u64::try_from(WRITERS * COMMITS * 5).unwrap() {
                let since = Instant::now();
                match reader % 3 {
                    0 => drop(store.open_jobs().await.unwrap()),
                    1 => drop(store.feed(&Scope::Every, 0, 1_000).await.unwrap()),
                    _ => {
                        let all = PageFrom { from: None, limit: 100 };
                        drop(store.jobs(JobFilter::of(tenant()), all).await.unwrap());
                    }
                }
                let counts = store.counts(&Scope::Every).await.unwrap();
                waits.push(since.elapsed());
                seen = counts.into_iter().map(|(_, _, jobs)| jobs).sum();
            }
            longest(waits)
        }));
    }
    for task in tasks {
        let waited = test.runtime.block_on(task).unwrap();
        assert!(waited < WAIT_MAX, "somebody waited for {waited:?}");
    }
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

/// For how long users write without a pause, and how long anybody may wait meanwhile.
const CROWDED: Duration = Duration::from_secs(2);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Does something again and again for as long, and tells how long it took at the most.
fn slowest_of(mut what: impl FnMut(u128)) -> Duration {
    let begun = Instant::now();
    let times = (0..).take_while(|_| begun.elapsed() < CROWDED);
    let timed = times.map(|number| {
        let since = Instant::now();
        what(number);
        since.elapsed()
    });
    timed.max().unwrap()
}

/// SQLite's own way to wait for a lock lets some of them wait for seconds here.
#[test]
fn among_users_who_write_all_the_time_everybody_has_a_turn() {
    let test = TestStore::new(Backend::Memory);
    test.home.user().sql("CREATE TABLE orders (id INTEGER PRIMARY KEY)");
    let write = "BEGIN IMMEDIATE; INSERT INTO orders VALUES (NULL); COMMIT";
    thread::scope(|scope| {
        let users = [0; 6].map(|_| {
            let mut user = test.home.user();
            scope.spawn(move || slowest_of(|_| user.sql(write)))
        });
        let commits = scope.spawn(|| {
            slowest_of(|number| {
                test.enqueue(number, plain());
            })
        });
        let reads =
            scope.spawn(|| slowest_of(|_| drop(test.wait(test.store.counts(&Scope::Every)))));
        for one in users.into_iter().chain([commits, reads]) {
            let waited = one.join().unwrap();
            assert!(waited < WAIT_MAX, "somebody waited for {waited:?}");
        }
    });
}

/// Longer than everything that is done meanwhile, and shorter than anybody waits for a lock.
const HELD: Duration = Duration::from_millis(300);

#[test]
fn whoever_finds_the_store_locked_by_a_user_waits() {
    let test = TestStore::new(Backend::Memory);
    test.enqueue(1, plain());
    for (number, holds) in (2..).zip(["BEGIN IMMEDIATE", "BEGIN; SELECT * FROM jobs"]) {
        let mut user = test.home.user();
        user.sql(holds);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(HELD);
                user.sql("COMMIT");
            });
            let since = Instant::now();
            test.enqueue(number, plain());
            test.job(JobId::from_u128(1));
            assert!(since.elapsed() >= HELD - HELD / 10, "{holds}: {:?}", since.elapsed());
        });
    }
}

/// A user's own transaction, on a connection that the store gave out.
fn enqueue_own(store: &Sqlite, number: u128, new: NewJob) {
    let mut shop = store.connect().unwrap();
    shop.execute_batch("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)").unwrap();
    let now = (clock(&Arc::new(AtomicI64::new(START))))();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    transaction.execute("INSERT INTO orders VALUES (NULL)", []).unwrap();
    enqueue_in(&transaction, &enqueue(number, new), now).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn a_connection_of_the_store_takes_a_users_transaction_in_memory_and_in_a_file() {
    let home = FileHome::new();
    let in_a_file = open(&home.path, &Arc::new(AtomicI64::new(START)), None).unwrap();
    let runtime = runtime(1);
    for store in [in_memory(false), in_memory(true), in_a_file] {
        enqueue_own(&store, 1, plain());
        let job = runtime.block_on(store.job(&Scope::Every, JobId::from_u128(1))).unwrap();
        assert!(job.is_some());
        let orders = "SELECT count(*) FROM orders";
        let count = store.connect().unwrap().query_row(orders, [], |row| row.get::<_, u64>(0));
        assert_eq!(count.unwrap(), 1);
        assert!(store.check().unwrap().is_clean());
    }
}

#[test]
fn the_checker_finds_what_is_wrong_while_the_store_is_open() {
    for inline in [false, true] {
        let store = in_memory(inline);
        let runtime = runtime(1);
        let writes = (1..=3).map(|number| write(enqueue(number, plain()))).collect::<Vec<_>>();
        runtime.block_on(store.commit(writes.into())).unwrap();
        let report = store.check().unwrap();
        assert!(report.is_clean(), "{report}");
        store.connect().unwrap().execute("DELETE FROM jobs WHERE seq = 2", []).unwrap();
        let report = store.check().unwrap();
        let found: Vec<Invariant> = report.violations.iter().map(|it| it.invariant).collect();
        assert!(
            !found.is_empty() && found.iter().all(|rule| *rule != Invariant::Integrity),
            "{report}"
        );
        // It goes on.
        let writes = vec![write(enqueue(4, plain()))];
        runtime.block_on(store.commit(writes.into())).unwrap().remove(0).unwrap();
    }
}
