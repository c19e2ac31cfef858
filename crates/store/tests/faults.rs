//! Faults of the disk and of the writer: what the caller is told, and that nothing half-done remains.
#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use common::*;
use windlass_kernel::{JobId, Timestamp};
use windlass_store::{
    Error,
    sqlite::{Options, Sqlite},
};

/// Enqueues jobs until the store gives an error, and counts those that were acknowledged.
fn enqueue_until_it_fails(test: &FileStore, next: &mut u128) -> Error {
    let text = format!("\"{}\"", "x".repeat(4000));
    loop {
        assert!(*next < 10_000, "the disk never failed");
        let write = write(enqueue(*next + 1, with_payload(&text)));
        match test.runtime.block_on(test.store.commit(vec![write].into())) {
            Ok(_) => *next += 1,
            Err(error) => return error,
        }
    }
}

/// What is stored is what was acknowledged, with its events, and the database is whole.
fn check_whole(test: &FileStore, jobs: u128) {
    let sql = test.sql();
    let count = |what: &str| -> u128 {
        let count: i64 = sql.query_row(what, [], |row| row.get(0)).unwrap();
        u128::try_from(count).unwrap()
    };
    assert_eq!(count("SELECT count(*) FROM jobs"), jobs);
    assert_eq!(count("SELECT count(*) FROM payloads"), jobs);
    assert_eq!(count("SELECT coalesce(sum(count), 0) FROM log"), jobs);
    assert_eq!(count("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    let whole: String = sql.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}

#[test]
fn a_full_disk_refuses_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m none \"$FOLDER\"";
    run(prepared_child(script, "child_fills_the_disk", &folder.path().join("w.db")));
}

#[test]
fn child_fills_the_disk() {
    let Some(path) = child_path() else { return };
    let ballast = |number: u32| path.with_file_name(format!("ballast{number}"));
    for number in 0..4 {
        fs::write(ballast(number), vec![0; 128 * 1024]).unwrap();
    }
    let test = FileStore::open(&path).unwrap();
    let mut jobs = 0;
    for number in 0..4 {
        let before = jobs;
        for _ in 0..3 {
            let error = enqueue_until_it_fails(&test, &mut jobs);
            assert_eq!((error.code(), error.info().retryable), ("DISK_FULL", true), "{error:?}");
        }
        assert!(jobs > before, "nothing fitted into what had become free");
        check_whole(&test, jobs);
        test.job(JobId::from_u128(jobs));
        fs::remove_file(ballast(number)).unwrap();
    }
    test.enqueue(jobs + 1, with_payload(&format!("\"{}\"", "x".repeat(4000))));
    drop(test);
    check_whole(&FileStore::open(&path).unwrap(), jobs + 1);
}

#[test]
fn a_disk_that_fails_stops_the_store_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    // A file may not grow beyond this many blocks, and whoever tries gets an error of the disk.
    run(prepared_child("trap '' XFSZ; ulimit -f 1024", "child_meets_a_disk_that_fails", &path));
    let jobs: u128 = fs::read_to_string(folder.path().join("jobs")).unwrap().parse().unwrap();
    check_whole(&FileStore::open(&path).unwrap(), jobs);
}

#[test]
fn child_meets_a_disk_that_fails() {
    let Some(path) = child_path() else { return };
    let test = FileStore::open(&path).unwrap();
    let mut jobs = 0;
    let error = enqueue_until_it_fails(&test, &mut jobs);
    assert!(error.to_string().contains("the disk failed"), "{error}");
    assert_eq!(error.code(), "STORE_STOPPED");
    check_stopped(&test);
    test.job(JobId::from_u128(jobs));
    fs::write(path.with_file_name("jobs"), jobs.to_string()).unwrap();
}

/// Nothing can be written any more, and nobody waits.
fn check_stopped(test: &FileStore) {
    for number in 0..3 {
        let write = write(enqueue(10_000 + number, plain()));
        let error = test.runtime.block_on(test.store.commit(vec![write].into())).unwrap_err();
        assert_eq!(error.code(), "STORE_STOPPED", "{error}");
    }
    let raised = test.runtime.block_on(test.store.raise_incarnation());
    assert_eq!(raised.unwrap_err().code(), "STORE_STOPPED");
}

#[test]
fn a_writer_that_panics_leaves_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    drop(FileStore::open(&path).unwrap());
    let breaks = Arc::new(AtomicBool::new(false));
    let mut test = FileStore::open(&folder.path().join("unused.db")).unwrap();
    test.store = Arc::new(store_with_clock(&path, breaks.clone()));
    test.enqueue(1, plain());

    breaks.store(true, Ordering::SeqCst);
    let asked: Vec<_> = (2..100)
        .map(|number| {
            let store = test.store.clone();
            let write = write(enqueue(number, plain()));
            test.runtime.spawn(async move { store.commit(vec![write].into()).await.map(|_| ()) })
        })
        .collect();
    for task in asked {
        let error = test.runtime.block_on(task).unwrap().unwrap_err();
        assert_eq!(error.code(), "STORE_STOPPED", "{error}");
    }
    check_stopped(&test);
    test.job(JobId::from_u128(1));
    drop(test);
    let again = FileStore::open(&path).unwrap();
    assert_eq!(again.wait(again.store.open_jobs()).len(), 1);
}

/// A store whose clock panics, in the writer's thread, when it is told to.
fn store_with_clock(path: &Path, breaks: Arc<AtomicBool>) -> Sqlite {
    let clock = move || {
        assert!(!breaks.load(Ordering::SeqCst), "the clock breaks, as the test wants it");
        Timestamp::from_micros(START)
    };
    let options =
        Options { path: path.to_owned(), clock: Arc::new(clock), ticks: None, address: None };
    Sqlite::open(options).unwrap()
}

#[test]
fn a_foreign_lock_is_waited_for() {
    let test = FileStore::new();
    let shell = test.sql();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let release = thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        shell.execute_batch("ROLLBACK").unwrap();
    });
    test.enqueue(1, plain());
    release.join().unwrap();
}

#[test]
fn a_foreign_lock_that_stays_makes_the_store_unavailable_for_a_while() {
    let test = FileStore::new();
    test.enqueue(1, plain());
    let shell = test.sql();
    shell.execute_batch("BEGIN IMMEDIATE").unwrap();
    let since = Instant::now();
    let asked = test.store.commit(vec![write(enqueue(2, plain()))].into());
    let error = test.runtime.block_on(asked).unwrap_err();
    assert_eq!((error.code(), error.info().retryable), ("UNAVAILABLE", true), "{error:?}");
    let waited = since.elapsed();
    assert!(waited >= Duration::from_secs(4) && waited < Duration::from_secs(10), "{waited:?}");
    test.job(JobId::from_u128(1));
    shell.execute_batch("ROLLBACK").unwrap();
    test.enqueue(2, plain());
}

#[test]
fn a_row_that_contradicts_the_rules_fails_its_batch_alone() {
    let test = FileStore::new();
    test.enqueue(1, plain());
    let shell = test.sql();
    // Somebody has taken the place of an event that is still to come.
    let taken = "INSERT INTO log (id, tenant, at, count, events) VALUES (3, 'acme', 0, 1, '[]')";
    shell.execute_batch(taken).unwrap();
    test.enqueue(2, plain());
    let asked = test.store.commit(vec![write(enqueue(3, plain()))].into());
    let error = test.runtime.block_on(asked).unwrap_err();
    assert_eq!(error.code(), "STORE_CONTRADICTION", "{error:?}");
    shell.execute_batch("DELETE FROM log WHERE id = 3").unwrap();
    test.enqueue(3, plain());
    let events = test.wait(test.store.events(&Scope::Every, JobId::from_u128(3)));
    assert_eq!(events.len(), 1);
}

#[test]
fn a_row_that_cannot_be_read_stops_the_store() {
    let test = FileStore::new();
    let id = test.enqueue(1, plain());
    test.sql().execute("UPDATE jobs SET rest = 'no json'", []).unwrap();
    let read = test.runtime.block_on(test.store.job(&Scope::Every, id)).unwrap_err();
    assert_eq!(read.code(), "STORE_DAMAGED", "{read}");
    let asked = test.store.commit(vec![write(enqueue(1, plain()))].into());
    let error = test.runtime.block_on(asked).unwrap_err();
    assert_eq!(error.code(), "STORE_DAMAGED", "{error}");
    check_stopped(&test);
}
