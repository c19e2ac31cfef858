//! Checkpoints that fail: the log cannot be folded into the database, and nothing is lost or hidden.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "power/record.rs"]
#[expect(dead_code, reason = "only its way to run a process under the recorder is used")]
mod record;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use common::*;
use windlass_store::{Error, sqlite::check};

/// Pages after which the log is folded into the database, and their size in the log.
const PAGES: u64 = 1_000;
const PAGE_BYTES: u64 = 4_096 + 24;

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", path.display()))
}

fn log_bytes(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).unwrap().len()
}

/// Enqueues until the store gives an error, or `enough` says so, and counts what was acknowledged.
fn enqueue_until(
    test: &FileStore,
    jobs: &mut u128,
    mut enough: impl FnMut(u128) -> bool,
) -> Option<Error> {
    let text = format!("\"{}\"", "x".repeat(8_000));
    while !enough(*jobs) {
        assert!(*jobs < 10_000, "it never came to an end");
        let write = write(enqueue(*jobs + 1, with_payload(&text)));
        match test.runtime.block_on(test.store.commit(vec![write].into())) {
            Ok(_) => *jobs += 1,
            Err(error) => return Some(error),
        }
    }
    None
}

/// All that was acknowledged is there, and no rule is broken.
fn check_all(path: &Path, jobs: u128) {
    let test = FileStore::open(path).unwrap();
    for number in 1..=jobs {
        test.job(windlass_kernel::JobId::from_u128(number));
    }
    drop(test);
    let report = check(path).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(u128::from(report.jobs), jobs);
}

#[test]
fn a_disk_that_is_full_in_a_checkpoint_refuses_and_goes_on_when_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=20m none \"$FOLDER\"";
    run(prepared_child(script, "child_fills_the_disk", &folder.path().join("w.db")));
}

#[test]
fn child_fills_the_disk() {
    let Some(path) = child_path() else { return };
    let ballast = |number: usize| path.with_file_name(format!("ballast{number}"));
    // What the first two leave is taken by the log, by the database, or by both, as they race for it: the disk is full
    // again in any case. The last leaves room for all that the log holds and for what comes after it.
    for (number, size_mib) in [1, 1, 9].into_iter().enumerate() {
        fs::write(ballast(number), vec![0; size_mib * 1024 * 1024]).unwrap();
    }
    let test = FileStore::open(&path).unwrap();
    let mut jobs = 0;
    for number in 0..3 {
        for _ in 0..3 {
            let error = enqueue_until(&test, &mut jobs, |_| false).unwrap();
            assert_eq!((error.code(), error.info().retryable), ("DISK_FULL", true), "{error:?}");
        }
        // It was a checkpoint that met the end of the disk: the log has all that one waits for.
        let bytes = log_bytes(&path);
        assert!(bytes >= PAGES * PAGE_BYTES, "the log has only {bytes} bytes");
        test.job(windlass_kernel::JobId::from_u128(jobs));
        fs::remove_file(ballast(number)).unwrap();
    }
    let before = jobs;
    let error = enqueue_until(&test, &mut jobs, |jobs| jobs == before + 20);
    assert!(error.is_none(), "after {} more jobs: {error:?}", jobs - before);
    drop(test);
    check_all(&path, jobs);
}

#[test]
fn a_database_that_cannot_be_synced_stops_the_store_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("w.db");
    let recorder = record::build_recorder(folder.path());
    let notes = folder.path().join("notes");
    record::run_recorded(&recorder, "child_cannot_sync_its_database", &path, &notes);
    let jobs: u128 = fs::read_to_string(folder.path().join("jobs")).unwrap().parse().unwrap();
    check_all(&path, jobs);
}

#[test]
fn child_cannot_sync_its_database() {
    let Some(path) = child_path() else { return };
    let test = FileStore::open(&path).unwrap();
    let mut jobs = 0;
    enqueue_until(&test, &mut jobs, |jobs| jobs == 10);
    fs::write(env::var_os("WINDLASS_RECORD_FAIL").unwrap(), "").unwrap();
    let error = enqueue_until(&test, &mut jobs, |jobs| jobs == 600);
    println!("{jobs} jobs, a log of {} bytes: {error:?}", log_bytes(&path));
    let error = error.expect("the store goes on, though its disk has failed");
    assert_eq!(error.code(), "STORE_STOPPED", "{error}");
    assert!(error.to_string().contains("the disk failed"), "{error}");
    fs::write(path.with_file_name("jobs"), jobs.to_string()).unwrap();
    println!("the work is done");
}
