//! What can go wrong around the inbox: other processes, crashes, a lock that stays, and garbage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rusqlite::{Connection, TransactionBehavior};
use windlass_kernel::{JobId, State, Timestamp};
use windlass_store::{
    Error,
    check::Invariant,
    sqlite::{self, Options, Sqlite},
};

use crate::{check, common::*, count, find, put, user_commits, wait_for_jobs};

#[test]
fn a_process_that_dies_before_the_promotion_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    drop(Killed::start(child("faults::child_dies_before_the_promotion", &path)));
    let sql = Connection::open(&path).unwrap();
    let count = |sql: &Connection, table: &str| -> u64 {
        sql.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count(&sql, "inbox"), count(&sql, "jobs")), (2, 0));
    let test = FileStore::open(&path).unwrap();
    wait_for_jobs(&test, 2);
    assert_eq!(test.job(JobId::from_u128(2)).state, State::Queued);
    assert_eq!(count(&sql, "inbox"), 0);
    drop(test);
    let report = sqlite::check(&path).unwrap();
    assert!(report.is_clean() && report.jobs == 2, "{report}");
}

/// Its writer stands still at its first commit, which would promote.
#[test]
fn child_dies_before_the_promotion() {
    let Some(path) = child_path() else { return };
    let clock = || {
        thread::sleep(Duration::from_secs(600));
        Timestamp::from_micros(START)
    };
    let options =
        Options { path: path.clone(), clock: Arc::new(clock), ticks: None, address: None };
    let _store = Sqlite::open(options).unwrap();
    let mut shop = Connection::open(path).unwrap();
    let transaction = shop.transaction().unwrap();
    put(&transaction, 1, plain()).unwrap();
    put(&transaction, 2, plain()).unwrap();
    transaction.commit().unwrap();
    wait_to_be_killed();
}

#[test]
fn an_open_transaction_makes_the_store_unavailable_and_loses_nothing() {
    let test = FileStore::new();
    test.enqueue(1, plain());
    let mut shop = test.sql();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    put(&transaction, 2, plain()).unwrap();
    let asked = test.store.commit(vec![write(enqueue(3, plain()))].into());
    let error = test.runtime.block_on(asked).unwrap_err();
    assert_eq!((error.code(), error.info().retryable), ("UNAVAILABLE", true), "{error:?}");
    // Reads go on, and do not see what is not committed.
    assert_eq!(test.job(JobId::from_u128(1)).state, State::Queued);
    assert_eq!(find(&test, 2), None);
    transaction.commit().unwrap();
    test.enqueue(3, plain());
    assert_eq!(test.claim("w1", 1, 10).len(), 3);
    check(&test, &[]);
}

#[test]
fn a_read_of_a_job_that_waits_says_so_if_it_cannot_be_promoted() {
    let test = FileStore::new();
    let is_shut = Arc::new(AtomicBool::new(true));
    let number = user_holds_the_lock_after_a_job(&test, is_shut.clone());
    let error =
        test.runtime.block_on(test.store.job(&Scope::Every, JobId::from_u128(number))).unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    is_shut.store(false, Ordering::SeqCst);
    wait_for_jobs(&test, u64::try_from(number).unwrap());
}

/// Commits a job, takes the lock again before anybody can promote it, and keeps it while it is told to.
fn user_holds_the_lock_after_a_job(test: &FileStore, is_shut: Arc<AtomicBool>) -> u128 {
    let shop = test.sql();
    let mut number = 0;
    // Between the two transactions the writer may be faster, if it is just looking.
    while count(test, "inbox") == 0 {
        number += 1;
        put_alone(&shop, number);
    }
    thread::spawn(move || {
        while is_shut.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(5));
        }
        shop.execute_batch("ROLLBACK").unwrap();
    });
    number
}

/// Commits a job and begins the next transaction.
fn put_alone(shop: &Connection, number: u128) {
    if shop.is_autocommit() {
        shop.execute_batch("BEGIN IMMEDIATE").unwrap();
    }
    put(shop, number, plain()).unwrap();
    shop.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
}

/// What somebody may write into the inbox by hand: sets that spoil a good row.
const GARBAGE: [&str; 8] = [
    "op = 'no json'",
    "op = '{}'",
    "op = json_set(op, '$.colour', 'red')",
    "op = CAST(x'7bff7d' AS TEXT)",
    "tenant = ''",
    "payload = '{'",
    "payload = CAST(x'22ff22' AS TEXT)",
    "op = json_set(op, '$.random', 'four')",
];

#[test]
fn garbage_is_set_aside_and_stops_nobody() {
    let test = FileStore::new();
    let mut shop = test.sql();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    for (number, garbage) in (1..).zip(GARBAGE) {
        put(&transaction, number * 2, plain()).unwrap();
        put(&transaction, number * 2 + 1, with_payload("[ 1 ]")).unwrap();
        let spoil = format!("UPDATE inbox SET {garbage} WHERE seq = last_insert_rowid()");
        assert_eq!(transaction.execute(&spoil, []).unwrap(), 1);
    }
    let before: Vec<u8> = inbox_text(&transaction, "inbox WHERE seq % 2 = 0 ORDER BY seq");
    transaction.commit().unwrap();
    test.enqueue(100, plain());
    let rows = u64::try_from(GARBAGE.len()).unwrap();
    assert_eq!(count(&test, "inbox"), 0);
    assert_eq!(count(&test, "inbox_set_aside"), rows);
    assert_eq!(count(&test, "jobs"), rows + 1);
    // Not a byte of it was changed.
    assert_eq!(inbox_text(&test.sql(), "inbox_set_aside ORDER BY id"), before);
    let report = sqlite::check(&test.path).unwrap();
    assert_eq!(report.violations.len(), GARBAGE.len(), "{report}");
    check(&test, &[Invariant::InboxSetAside]);
    assert!(report.to_string().contains("op: unknown field `colour`"), "{report}");
}

/// Everything that these rows say, one after the other.
fn inbox_text(sql: &Connection, rows: &str) -> Vec<u8> {
    let bytes = ["tenant", "op", "payload"].map(|it| format!("hex({it})")).join(" || ");
    let sql_text = format!("SELECT hex(job_id) || {bytes} || at FROM {rows}");
    let mut statement = sql.prepare(&sql_text).unwrap();
    let texts = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    texts.flat_map(|text| text.unwrap().into_bytes()).collect()
}

#[test]
fn a_row_that_the_database_refuses_is_set_aside_alone() {
    let test = FileStore::new();
    let contradiction =
        "CREATE TRIGGER no_poison BEFORE INSERT ON jobs WHEN new.payload = '\"poison\"'
        BEGIN SELECT RAISE(ABORT, 'no poison here'); END";
    test.sql().execute_batch(contradiction).unwrap();
    let text = |number: u128| if number.is_multiple_of(7) { "\"poison\"" } else { "{}" };
    user_commits(&test, (1..=50).map(|number| (number, with_payload(text(number)))));
    // The batch that comes with them is written, and so are the others, in their order.
    test.enqueue(100, plain());
    assert_eq!((count(&test, "inbox"), count(&test, "inbox_set_aside")), (0, 7));
    assert_eq!(count(&test, "jobs"), 44);
    test.sql().execute_batch("DROP TRIGGER no_poison").unwrap();
    check(&test, &[Invariant::InboxSetAside]);
    // Whoever has removed the cause can put them back.
    let back = "INSERT INTO inbox (job_id, tenant, at, op, payload)
            SELECT job_id, tenant, at, op, payload FROM inbox_set_aside ORDER BY id;
        DELETE FROM inbox_set_aside";
    test.sql().execute_batch(&format!("BEGIN; {back}; COMMIT")).unwrap();
    assert!(find(&test, 49).is_some());
    assert_eq!(count(&test, "jobs"), 51);
    check(&test, &[]);
}
