//! User transactions on SQLite: its locks, its views, and what else only a file can meet. What every database
//! promises to a user's transaction is part of conformance.
#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "user_transactions/faults.rs"]
mod faults;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::*;
use rusqlite::{Connection, TransactionBehavior};
use windlass_kernel::{
    IdempotencyKey, IdempotencyScope, JobId, Timestamp,
    ops::{Idempotency, NewJob},
};
use windlass_store::{
    check::Invariant,
    read::InboxResult,
    sqlite::{self, EnqueueInError, enqueue_in},
};

/// Enqueues in one transaction of a user, who has a table of orders in the same file.
fn user_commits(test: &FileStore, jobs: impl IntoIterator<Item = (u128, NewJob)>) {
    let mut shop = test.sql();
    let orders = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)";
    shop.execute_batch(orders).unwrap();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    for (number, new) in jobs {
        transaction.execute("INSERT INTO orders VALUES (NULL)", []).unwrap();
        put(&transaction, number, new).unwrap();
    }
    transaction.commit().unwrap();
}

fn put(connection: &Connection, number: u128, new: NewJob) -> Result<(), EnqueueInError> {
    enqueue_in(connection, &enqueue(number, new), Timestamp::from_micros(START))
}

fn count(test: &FileStore, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    test.sql().query_row(&sql, [], |row| row.get(0)).unwrap()
}

fn result(test: &FileStore, number: u128) -> Option<InboxResult> {
    test.wait(test.store.inbox_result(&Scope::Every, JobId::from_u128(number)))
}

fn find(test: &FileStore, number: u128) -> Option<windlass_kernel::Job> {
    test.wait(test.store.job(&Scope::Every, JobId::from_u128(number)))
}

fn with_key(key: &str, new: NewJob) -> NewJob {
    let scope = IdempotencyScope::new("orders").unwrap();
    let key = IdempotencyKey::new(key).unwrap();
    NewJob { idempotency: Idempotency::Key { scope, key }, ..new }
}

/// Waits until the store has so many jobs, and writes nothing meanwhile.
fn wait_for_jobs(test: &FileStore, jobs: u64) {
    let since = Instant::now();
    while test.wait(test.store.counts(&Scope::Every)).iter().map(|it| it.2).sum::<u64>() < jobs {
        assert!(since.elapsed() < Duration::from_secs(10), "nobody has noticed");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The checker finds these rules broken, and no others.
fn check(test: &FileStore, rules: &[Invariant]) {
    let report = sqlite::check(&test.path).unwrap();
    let mut found: Vec<Invariant> = report.violations.iter().map(|it| it.invariant).collect();
    found.dedup();
    assert_eq!(found, rules, "{report}");
}

#[test]
fn a_connection_without_a_transaction_and_a_wrong_database_are_refused() {
    let test = FileStore::new();
    let shop = test.sql();
    let refused = put(&shop, 1, plain()).unwrap_err();
    assert!(matches!(refused, EnqueueInError::NoTransaction), "{refused}");

    let wrong = |sql: &str| {
        let other = Connection::open_in_memory().unwrap();
        other.execute_batch(sql).unwrap();
        match put(&other, 1, plain()) {
            Err(EnqueueInError::WrongDatabase(why)) => why,
            other => panic!("{other:?} after {sql}"),
        }
    };
    assert!(wrong("BEGIN").contains("no such table"));
    let meta = "CREATE TABLE meta (name, value)";
    assert!(wrong(&format!("{meta}; BEGIN")).contains("never opened"));
    let other = "INSERT INTO meta VALUES ('store_id', 'x'); PRAGMA user_version = 77; BEGIN";
    assert!(wrong(&format!("{meta}; {other}")).contains("migration 77"));
    test.commit(Vec::new());
    assert_eq!(count(&test, "jobs"), 0);
}

#[test]
fn the_view_of_events_shows_what_became_of_an_enqueue() {
    let test = FileStore::new();
    test.enqueue(1, with_key("a", plain()));
    user_commits(&test, [(3, with_key("a", with_payload("{ \"other\":1.0 }")))]);
    let number = result(&test, 3).unwrap().event;
    let sql = "SELECT cause, job_id FROM events WHERE number = ?1";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let seen: (String, String) = test.sql().query_row(sql, [number], row).unwrap();
    assert_eq!(seen, ("inbox_conflict".to_owned(), JobId::from_u128(3).to_string()));
}

/// Rows that cannot be read are as heavy as others: somebody may have put anything there.
#[test]
fn a_commit_takes_no_more_of_the_inbox_than_it_can_carry() {
    let (home, runtime) = (Arc::new(FileHome::new()), runtime(1));
    // Each look at this clock is later, so each commit has a time of its own.
    let now = AtomicI64::new(START);
    let clock = Arc::new(move || Timestamp::from_micros(now.fetch_add(1, Ordering::SeqCst)));
    let store = home.open(clock, &runtime).unwrap();
    let mut shop = home.sql();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let put = "INSERT INTO inbox (job_id, tenant, at, op, payload) VALUES (randomblob(16), 'acme', 0, 'none', ?1)";
    for _ in 0..12 {
        transaction.execute(put, ["y".repeat(1024 * 1024)]).unwrap();
    }
    transaction.commit().unwrap();
    let waiting = |shop: &Connection| {
        shop.query_row("SELECT count(*) FROM inbox", [], |row| row.get::<_, u64>(0)).unwrap()
    };
    let begun = Instant::now();
    while waiting(&shop) > 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it is not taken");
        thread::sleep(Duration::from_millis(10));
    }
    let most = "
        SELECT max(bytes) FROM (
            SELECT sum(length(payload)) AS bytes FROM inbox_set_aside GROUP BY found_at)";
    let most: usize = shop.query_row(most, [], |row| row.get(0)).unwrap();
    assert!(most <= 5 * 1024 * 1024, "{most} bytes in one commit");
    drop(store);
}
