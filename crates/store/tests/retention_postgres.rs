//! Retention where several nodes share a store: they stay out of each other's way, and partitions of the log go when
//! nothing in them is needed.

#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod common;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use common::{
    postgres::{SchemaHome, Shell},
    *,
};
use windlass_kernel::{JobId, Retention};
use windlass_store::read::Pruned;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How many log numbers a partition takes.
const PARTITION: i64 = 1024 * 65_536;

fn after_an_hour() -> Retention {
    Retention { finished_for: HOUR, ..Retention::default() }
}

/// A new store, and a connection beside it.
fn new_store() -> (TestStore, Shell) {
    let test = TestStore::new(Backend::Postgres);
    let shell = new_shell(&test);
    (test, shell)
}

fn new_shell(test: &TestStore) -> Shell {
    SchemaHome::at(&test.home.address()).sql()
}

fn prune(test: &TestStore) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let pruned = test.wait(test.store.prune(after_an_hour(), 100));
        all.jobs += pruned.jobs;
        all.log_rows += pruned.log_rows;
        if !pruned.more {
            return all;
        }
    }
}

fn finish(test: &TestStore, number: u128) {
    test.enqueue(number, plain());
    for granted in test.claim("w1", number, 1) {
        test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
    }
}

fn assert_clean(test: &TestStore) {
    let report = test.home.check();
    assert!(report.is_clean(), "{report}");
}

/// The log goes on at the beginning of this partition.
fn go_on_in(shell: &Shell, partition: i64) {
    shell.query("SELECT setval('log_seq', $1)", &[&(partition * PARTITION)]);
}

/// The partitions below this number. Those above are made ahead, sooner or later.
fn partitions(shell: &Shell, below: u32) -> Vec<u32> {
    let sql = "
        SELECT substr(relname, 5) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
        WHERE inhparent = 'log'::regclass ORDER BY 1";
    let numbers = shell.query(sql, &[]).into_iter().map(|row| row.get::<_, &str>(0).parse());
    numbers.map(Result::unwrap).filter(|number| *number < below).collect()
}

/// Has passes until these partitions are left below this number. The transactions of other tests have to end first.
fn prune_to(test: &TestStore, shell: &Shell, below: u32, left: &[u32]) {
    let begun = Instant::now();
    while partitions(shell, below) != left {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", partitions(shell, below));
        prune(test);
    }
}

#[test]
fn a_partition_goes_when_it_is_empty_and_nobody_can_write_to_it_any_more() {
    let (test, shell) = new_store();
    let beside = new_shell(&test);
    finish(&test, 1);
    // It may have taken a number, for all that anyone knows.
    beside.run("BEGIN; SELECT pg_current_xact_id()");
    go_on_in(&shell, 3);
    test.pass(DAY);
    finish(&test, 2);
    assert_eq!(prune(&test).jobs, 1);
    assert_eq!(partitions(&shell, 4), [0, 1, 3], "transactions of that time may be open");
    prune(&test);
    assert_eq!(partitions(&shell, 4), [0, 1, 3], "one is open");
    beside.run("COMMIT");
    prune_to(&test, &shell, 4, &[3]);
    finish(&test, 3);
    assert_clean(&test);
}

#[test]
fn a_partition_stays_while_a_job_is_spoken_of_in_it_and_while_it_is_one_of_the_newest() {
    let (test, shell) = new_store();
    test.enqueue(1, plain());
    go_on_in(&shell, 2);
    test.enqueue(2, plain());
    go_on_in(&shell, 3);
    test.enqueue(3, plain());
    // Nothing was ever written into the second. Of the others each has a job that waits.
    prune_to(&test, &shell, 4, &[0, 2, 3]);
    for number in 1..=3 {
        for granted in test.claim("w1", number, 1) {
            test.op(settle(granted.job.id, granted.job.epoch, succeeded())).unwrap();
        }
    }
    test.pass(DAY);
    assert_eq!(prune(&test).jobs, 3);
    // The third is the one before the newest.
    prune_to(&test, &shell, 4, &[2, 3]);
    prune(&test);
    assert_eq!(partitions(&shell, 4), [2, 3]);
    assert_clean(&test);
}

#[test]
fn a_partition_that_somebody_reads_stays_until_the_next_pass() {
    let (test, shell) = new_store();
    finish(&test, 1);
    go_on_in(&shell, 3);
    finish(&test, 2);
    test.pass(DAY);
    assert_eq!(prune(&test).jobs, 2);
    shell.run("BEGIN; SELECT count(*) FROM log");
    prune(&test);
    assert_eq!(partitions(&shell, 4), [0, 1, 3]);
    shell.run("COMMIT");
    prune_to(&test, &shell, 4, &[3]);
}

#[test]
fn a_job_whose_id_says_that_it_is_young_goes_a_day_later() {
    let (test, _) = new_store();
    prune(&test);
    finish(&test, u128::MAX >> 1);
    finish(&test, (u128::try_from(START).unwrap() / 1000) << 80);
    test.pass(2 * HOUR);
    assert_eq!(prune(&test).jobs, 1);
    test.pass(DAY);
    assert_eq!(prune(&test).jobs, 1);
    assert_clean(&test);
}

#[test]
fn of_two_nodes_one_prunes_at_a_time() {
    let (test, shell) = new_store();
    finish(&test, 1);
    test.pass(DAY);
    shell
        .run("BEGIN; SELECT pg_advisory_xact_lock(1464615254, 'meta'::regclass::oid::bigint::int)");
    assert_eq!(test.wait(test.store.prune(after_an_hour(), 100)), Pruned::default());
    shell.run("COMMIT");
    assert_eq!(prune(&test).jobs, 1);
}

#[test]
fn a_job_or_a_letter_that_somebody_works_on_is_not_waited_for() {
    let (test, shell) = new_store();
    finish(&test, 1);
    finish(&test, 2);
    test.pass(DAY);
    let one = uuid(JobId::from_u128(1));
    shell.run(&format!("BEGIN; SELECT FROM jobs WHERE id = '{one}' FOR UPDATE"));
    let begun = Instant::now();
    assert_eq!(prune(&test).jobs, 1);
    assert!(begun.elapsed() < Duration::from_secs(4), "it waited");
    assert_clean(&test);
    shell.run("COMMIT");
    assert_eq!(prune(&test).jobs, 1);
    assert_clean(&test);
}

fn uuid(job: JobId) -> String {
    format!("{:032x}", job.as_u128())
}

#[test]
fn while_one_node_works_another_forgets_what_is_done() {
    let (worker, _) = new_store();
    let pruner = TestStore::open(worker.home.clone()).unwrap();
    // To this one all that ends is old.
    pruner.pass(DAY);
    let is_over = AtomicBool::new(false);
    let mut gone = thread::scope(|scope| {
        let gone = scope.spawn(|| {
            let mut gone = 0;
            while !is_over.load(Ordering::SeqCst) {
                gone += prune(&pruner).jobs;
            }
            gone
        });
        for round in 0..40 {
            let numbers = 1 + round * 20..=20 + round * 20;
            worker.commit(numbers.map(|number| write(enqueue(number, plain()))).collect());
            let granted = worker.claim("w1", round, 20);
            let settles =
                granted.iter().map(|it| write(settle(it.job.id, it.job.epoch, succeeded())));
            assert!(worker.commit(settles.collect()).iter().all(Result::is_ok));
            if round % 10 == 0 {
                assert_clean(&worker);
            }
        }
        is_over.store(true, Ordering::SeqCst);
        gone.join().unwrap()
    });
    gone += prune(&pruner).jobs;
    assert_eq!(gone, 800);
    assert_eq!((worker.home.count("jobs"), worker.home.count("feed")), (0, 1));
    assert_clean(&worker);
}

#[test]
fn an_id_is_not_given_out_again_while_its_job_is_being_forgotten() {
    let (test, shell) = new_store();
    finish(&test, 1);
    test.pass(DAY);
    let one = uuid(JobId::from_u128(1));
    // A step of another node, which is not at its end yet.
    shell.run(&format!(
        "BEGIN;
         INSERT INTO pruned (id, at, least_ms, version, rows)
         SELECT id, updated_at + interval '1 hour', 600000, version, length(history) / 8 - 4
         FROM jobs WHERE id = '{one}';
         DELETE FROM jobs WHERE id = '{one}'"
    ));
    thread::scope(|scope| {
        let asked = scope.spawn(|| test.op(enqueue(1, plain())));
        thread::sleep(Duration::from_millis(500));
        shell.run("COMMIT");
        assert_eq!(asked.join().unwrap().unwrap_err().code(), "JOB_EXISTS");
    });
    assert_clean(&test);
}
