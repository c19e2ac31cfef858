//! User transactions: a job is enqueued in a user's own transaction, and is there if and only if that
//! commits.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "user_transactions/faults.rs"]
mod faults;

use std::{
    thread,
    time::{Duration, Instant},
};

use common::*;
use rusqlite::{Connection, TransactionBehavior};
use windlass_kernel::{
    IdempotencyKey, IdempotencyScope, JobId, Refusal, State, TaskId, TenantId, Timestamp,
    job::Priority,
    ops::{Cancel, Idempotency, NewJob, NewTask},
};
use windlass_store::{
    Store,
    check::Rule,
    read::{InboxOutcome, InboxResult},
    sqlite::{self, EnqueueInError, enqueue_in},
};

/// Enqueues in one transaction of a user, who has a table of orders in the same file.
fn user_commits(test: &TestStore, jobs: impl IntoIterator<Item = (u128, NewJob)>) {
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

fn count(test: &TestStore, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    test.sql().query_row(&sql, [], |row| row.get(0)).unwrap()
}

fn result(test: &TestStore, number: u128) -> Option<InboxResult> {
    test.wait(test.store.inbox_result(JobId::from_u128(number)))
}

fn find(test: &TestStore, number: u128) -> Option<windlass_kernel::Job> {
    test.wait(test.store.job(JobId::from_u128(number)))
}

fn with_key(key: &str, new: NewJob) -> NewJob {
    let scope = IdempotencyScope::new("orders").unwrap();
    let key = IdempotencyKey::new(key).unwrap();
    NewJob { idempotency: Idempotency::Key { scope, key }, ..new }
}

/// The checker finds these rules broken, and no others.
fn check(test: &TestStore, rules: &[Rule]) {
    let report = sqlite::check(&test.path).unwrap();
    let mut found: Vec<Rule> = report.violations.iter().map(|it| it.rule).collect();
    found.dedup();
    assert_eq!(found, rules, "{report}");
}

#[test]
fn a_job_commits_with_the_users_rows() {
    let test = TestStore::new();
    user_commits(&test, [(1, plain())]);
    let job = test.job(JobId::from_u128(1));
    assert_eq!((job.state, job.version), (State::Queued, 1));
    let events = test.wait(test.store.events(job.id));
    assert_eq!(events[0].actor.to_string(), "user:ann");
    assert_eq!((count(&test, "inbox"), count(&test, "orders")), (0, 1));
    assert_eq!(result(&test, 1), None);
    assert_eq!(test.claim("w1", 1, 10).len(), 1);
    check(&test, &[]);
}

#[test]
fn a_rollback_leaves_nothing() {
    let test = TestStore::new();
    let mut shop = test.sql();
    let transaction = shop.transaction().unwrap();
    put(&transaction, 1, plain()).unwrap();
    transaction.rollback().unwrap();
    let mut transaction = shop.transaction().unwrap();
    let savepoint = transaction.savepoint().unwrap();
    put(&savepoint, 2, plain()).unwrap();
    drop(savepoint);
    let savepoint = transaction.savepoint().unwrap();
    put(&savepoint, 3, plain()).unwrap();
    savepoint.commit().unwrap();
    transaction.commit().unwrap();
    test.commit(Vec::new());
    assert_eq!((find(&test, 1), find(&test, 2)), (None, None));
    assert!(find(&test, 3).is_some());
    assert_eq!(count(&test, "jobs"), 1);
}

#[test]
fn many_in_one_transaction_keep_their_order() {
    let test = TestStore::new();
    user_commits(&test, (1..=1_200).rev().map(|number| (number, plain())));
    // The one that was asked for last is found, though a commit takes fewer than there are.
    assert!(find(&test, 1).is_some());
    let sql = test.sql();
    let mut statement = sql.prepare("SELECT id FROM jobs ORDER BY seq").unwrap();
    let ids = statement.query_map([], |row| row.get::<_, [u8; 16]>(0)).unwrap();
    let ids: Vec<u128> = ids.map(|id| u128::from_be_bytes(id.unwrap())).collect();
    assert!(ids.iter().copied().eq((1..=1_200).rev()), "{} jobs out of order", ids.len());
    check(&test, &[]);
}

#[test]
fn an_op_finds_a_job_at_the_end_of_a_long_inbox() {
    let test = TestStore::new();
    user_commits(&test, (1..=1_300).map(|number| (number, plain())));
    let job_id = JobId::from_u128(1_300);
    let cancel = Cancel { job_id, by: person("ann"), reason: None, force: false, grace: LEASE };
    assert_eq!(test.op(cancel).unwrap().state, State::Cancelled);
    assert_eq!((count(&test, "jobs"), count(&test, "inbox")), (1_300, 0));
    let missing = Cancel {
        job_id: JobId::from_u128(9_999),
        by: person("ann"),
        reason: None,
        force: false,
        grace: LEASE,
    };
    assert_eq!(test.op(missing), Err(Refusal::NotFound { what: "job" }));
    check(&test, &[]);
}

#[test]
fn a_hit_a_conflict_and_a_refusal_are_told_and_stop_nobody() {
    let test = TestStore::new();
    let task = |new| {
        let task_id = TaskId::new("invoice-1").unwrap();
        NewJob { task: Some(NewTask { task_id, may_rerun: false }), ..new }
    };
    test.enqueue(1, with_key("a", plain()));
    let before = test.wait(test.store.feed(0, 100)).len() as u64;
    user_commits(
        &test,
        [
            (2, with_key("a", plain())),
            (3, with_key("a", with_payload("{ \"other\":1.0 }"))),
            (4, task(plain())),
            (5, task(with_payload("[ 5 ]"))),
            (6, with_key("b", plain())),
            (7, with_key("b", plain())),
        ],
    );
    test.pass(Duration::from_secs(5));
    let first = JobId::from_u128(1);
    let hit = result(&test, 2).unwrap();
    assert_eq!((hit.outcome, hit.existing), (InboxOutcome::Hit, Some(first)));
    assert_eq!((hit.code, hit.request, hit.payload), (None, None, None));
    let conflict = result(&test, 3).unwrap();
    assert_eq!((conflict.outcome, conflict.existing), (InboxOutcome::Conflict, Some(first)));
    assert_eq!(conflict.code.as_deref(), Some("IDEMPOTENCY_CONFLICT"));
    assert_eq!(conflict.payload.as_deref(), Some("{ \"other\":1.0 }"));
    assert!(conflict.why.unwrap().contains("payload"), "it names the field");
    let refused = result(&test, 5).unwrap();
    assert_eq!((refused.outcome, refused.existing), (InboxOutcome::Refused, None));
    assert_eq!(refused.code.as_deref(), Some("TASK_DUPLICATE"));
    assert_eq!(refused.payload.as_deref(), Some("[ 5 ]"));
    assert_eq!(result(&test, 7).unwrap().existing, Some(JobId::from_u128(6)));
    for (number, made) in [(2, false), (3, false), (4, true), (5, false), (6, true), (7, false)] {
        assert_eq!(find(&test, number).is_some(), made, "job {number}");
    }
    let told: Vec<(u64, String)> = test
        .wait(test.store.feed(before, 100))
        .into_iter()
        .filter(|event| event.line.starts_with('{'))
        .map(|event| (event.number, event.line))
        .collect();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(told[0].1.starts_with("{\"inbox\":\"hit\",\"job_id\":\"job_"), "{told:?}");
    assert!(told[0].1.contains("user:ann"), "{told:?}");
    let events: Vec<u64> = [2, 3, 5, 7].map(|it| result(&test, it).unwrap().event).to_vec();
    assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), events);
    let sql = "SELECT cause, job_id FROM events WHERE number = ?1";
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let seen: (String, String) = test.sql().query_row(sql, [events[1]], row).unwrap();
    assert_eq!(seen, ("inbox_conflict".to_owned(), JobId::from_u128(3).to_string()));
    check(&test, &[]);
}

#[test]
fn a_deadline_that_passes_in_the_inbox_is_refused_and_kept() {
    let test = TestStore::new();
    let deadline_at = Some(test.now().plus(Duration::from_secs(1)));
    let mut shop = test.sql();
    let transaction = shop.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    put(&transaction, 1, NewJob { deadline_at, ..with_payload("[1]") }).unwrap();
    test.pass(Duration::from_secs(2));
    transaction.commit().unwrap();
    let refused = result(&test, 1).unwrap();
    assert_eq!(refused.code.as_deref(), Some("INVALID_INPUT"));
    assert_eq!(refused.payload.as_deref(), Some("[1]"));
    assert_eq!(refused.at.since(refused.asked_at), Duration::from_secs(2));
    check(&test, &[]);
}

#[test]
fn what_can_be_refused_at_once_is_refused_before_anything_is_written() {
    let test = TestStore::new();
    let mut shop = test.sql();
    let transaction = shop.transaction().unwrap();
    let odd = Some(Duration::from_micros(1_500));
    let early = Some(Timestamp::from_micros(START - 1));
    let reserved = Idempotency::Key {
        scope: IdempotencyScope::new("_job").unwrap(),
        key: IdempotencyKey::new("a").unwrap(),
    };
    for new in [
        NewJob { priority: Priority(2_000), ..plain() },
        NewJob { max_interruptions: 0, ..plain() },
        NewJob { timeout: odd, ..plain() },
        NewJob { deadline_at: early, ..plain() },
        NewJob { idempotency: reserved, ..plain() },
    ] {
        // The same words as those of the op.
        let op = test.op(enqueue(1, new.clone())).unwrap_err();
        match put(&transaction, 1, new) {
            Err(EnqueueInError::Refused(refusal)) => assert_eq!(refusal, op),
            other => panic!("{other:?} instead of {op}"),
        }
    }
    // The transaction is as it was: nothing was written, and it goes on.
    assert_eq!(transaction.total_changes(), 0);
    put(&transaction, 2, plain()).unwrap();
    transaction.commit().unwrap();
    assert!(find(&test, 2).is_some());
}

#[test]
fn a_connection_without_a_transaction_and_a_wrong_database_are_refused() {
    let test = TestStore::new();
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
fn a_payload_is_kept_byte_for_byte() {
    let test = TestStore::new();
    let long = format!("\"{}\"", "ü".repeat(200_000));
    let texts =
        ["{ \"n\" : 3544790567247868102,\n\t\"f\":1.10e+2 }", "\"\\u0000\\ud83d\\ude00 €\"", &long];
    user_commits(&test, (1..).zip(texts.map(with_payload)));
    for (number, text) in (1..).zip(texts) {
        let payload = test.wait(test.store.payload(JobId::from_u128(number)));
        assert_eq!(payload.as_deref(), Some(text));
    }
    check(&test, &[]);
}

/// Waits until the store has so many jobs, and writes nothing meanwhile.
fn wait_for_jobs(test: &TestStore, jobs: u64) {
    let since = Instant::now();
    while test.wait(test.store.counts()).iter().map(|it| it.2).sum::<u64>() < jobs {
        assert!(since.elapsed() < Duration::from_secs(10), "nobody has noticed");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_job_is_noticed_without_other_traffic() {
    let test = TestStore::new();
    for round in 1..=3 {
        let first = round * 2_000;
        user_commits(&test, (first..first + 600).map(|number| (number, plain())));
        wait_for_jobs(&test, u64::try_from(round * 600).unwrap());
    }
}

#[test]
fn jobs_of_several_tenants_are_told_each_to_its_own() {
    let test = TestStore::new();
    let mut shop = test.sql();
    let transaction = shop.transaction().unwrap();
    let now = Timestamp::from_micros(START);
    for number in 1..=6 {
        let tenant = TenantId::new(if number % 2 == 0 { "zeta" } else { "acme" }).unwrap();
        let mut op = enqueue(number, with_key("a", plain()));
        op.tenant = tenant;
        enqueue_in(&transaction, &op, now).unwrap();
    }
    transaction.commit().unwrap();
    test.commit(Vec::new());
    let feed = test.wait(test.store.feed(0, 100));
    let told: Vec<(u64, &str, bool)> =
        feed.iter().map(|it| (it.number, it.tenant.as_str(), it.line.starts_with('{'))).collect();
    let expected = [
        (1, "acme", false),
        (2, "zeta", false),
        (3, "acme", true),
        (4, "acme", true),
        (5, "zeta", true),
        (6, "zeta", true),
    ];
    assert_eq!(told, expected);
    assert_eq!(result(&test, 3).unwrap().existing, Some(JobId::from_u128(1)));
    assert_eq!(result(&test, 4).unwrap().existing, Some(JobId::from_u128(2)));
    assert_eq!(count(&test, "jobs"), 2);
    check(&test, &[]);
    test.enqueue(9, plain());
    check(&test, &[]);
}

#[test]
fn every_id_that_was_given_leads_to_a_job_or_to_a_result() {
    let test = TestStore::new();
    let users: u128 = 4;
    let each: u128 = 60;
    thread::scope(|scope| {
        for user in 1..=users {
            let test = &test;
            scope.spawn(move || {
                for number in 1..=each {
                    let text = format!("{}", (user + number) % 3);
                    let new = with_key(&format!("k{}", number % 40), with_payload(&text));
                    user_commits(test, [(user << 32 | number, new)]);
                    test.enqueue(user << 40 | number, plain());
                }
            });
        }
    });
    let mut made = 0;
    for user in 1..=users {
        for number in (1..=each).map(|number| user << 32 | number) {
            let (job, result) = (find(&test, number), result(&test, number));
            assert!(job.is_some() != result.is_some(), "{number} leads to {job:?} and {result:?}");
            made += u32::from(job.is_some());
        }
    }
    assert_eq!(made, 40, "one job for each key");
    assert_eq!(count(&test, "inbox_set_aside"), 0);
    check(&test, &[]);
}
