//! Losses: what was acknowledged and is gone is noticed, and a crash alone raises no alarm.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::{
    fs,
    path::{Path, PathBuf},
};

use common::*;
use rusqlite::Connection;
use windlass_kernel::JobId;

/// A store that was killed right after its first commit: all of it is in the log.
fn killed_after_a_commit(folder: &Path) -> PathBuf {
    let path = folder.canonicalize().unwrap().join("w.db");
    drop(Killed::start(child("child_commits_once", &path)));
    assert!(fs::metadata(beside(&path, "-wal")).unwrap().len() > 0);
    path
}

#[test]
fn child_commits_once() {
    let Some(path) = child_path() else { return };
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    wait_to_be_killed();
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    PathBuf::from(format!("{}{ending}", path.display()))
}

/// The file is refused as damaged, and the message says what to do.
fn check_noticed(path: &Path) {
    let (error, said) = refused(path);
    assert_eq!(error.code(), "STORE_DAMAGED", "{said}");
    for words in
        [&path.display().to_string(), "event 1 was written", "windlass restore", "w.db-mark"]
    {
        assert!(said.contains(words), "{words:?} is missing: {said}");
    }
}

/// The incarnation of a store, as the epoch of its next claim tells it.
fn incarnation(test: &FileStore) -> u64 {
    test.enqueue(999, plain());
    let granted = test.claim("w1", 999, 100);
    let last = granted.iter().find(|granted| granted.job.id == JobId::from_u128(999));
    last.unwrap().job.epoch.get() >> 32
}

#[test]
fn a_crash_alone_raises_no_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    let test = FileStore::open(&path).unwrap();
    test.job(JobId::from_u128(1));
    assert_eq!(incarnation(&test), 0);
}

#[test]
fn many_crashes_in_a_row_raise_no_alarm_and_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    for round in 1..=8 {
        // Each commits until it is killed, after having said how far it came at the least.
        let child = Killed::start(child("child_commits_without_end", &path));
        std::thread::sleep(std::time::Duration::from_millis(round * 7));
        drop(child);
        let test = FileStore::open(&path).unwrap();
        let jobs: u64 = test.wait(test.store.counts(&Scope::Every)).iter().map(|it| it.2).sum();
        assert!(jobs >= 10 * round, "only {jobs} jobs after round {round}");
        assert_eq!(test.store_incarnation(), 0, "a crash was taken for a copy");
    }
}

#[test]
fn child_commits_without_end() {
    let Some(path) = child_path() else { return };
    let test = FileStore::open(&path).unwrap();
    let first = u128::from(std::process::id()) << 64;
    for number in 0..1_000_000 {
        test.enqueue(first + number, plain());
        if number == 9 {
            println!("ready");
        }
    }
}

#[test]
fn a_log_that_was_deleted_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    fs::remove_file(beside(&path, "-wal")).unwrap();
    check_noticed(&path);
    check_noticed(&path);

    fs::remove_file(beside(&path, "-mark")).unwrap();
    FileStore::open(&path).expect("the loss was accepted");
}

#[test]
fn a_log_that_was_cut_is_noticed_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    let log = beside(&path, "-wal");
    let whole = fs::read(&log).unwrap();
    for length in [whole.len() - 1, whole.len() / 2, 32, 0] {
        fs::write(&log, &whole[..length]).unwrap();
        check_noticed(&path);
        let left = fs::read(&log).map_or(0, |left| left.len());
        assert_eq!(left, length, "the log was changed");
    }
    fs::write(&log, &whole).unwrap();
    FileStore::open(&path).unwrap();
}

#[test]
fn a_database_that_is_gone_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    drop(FileStore::open(&path).unwrap());
    fs::remove_file(&path).unwrap();
    check_noticed(&path);
}

#[test]
fn an_old_copy_is_noticed_unless_it_was_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let copy = folder.path().join("copy.db");
    drop(FileStore::open(&path).unwrap());
    fs::copy(&path, &copy).unwrap();
    FileStore::open(&path).unwrap().enqueue(1, plain());
    fs::copy(&copy, &path).unwrap();
    let (error, said) = refused(&path);
    assert_eq!(error.code(), "STORE_DAMAGED", "{said}");

    // Whoever restores a copy begins a new incarnation in it.
    let restored = Connection::open(&path).unwrap();
    restored.execute("INSERT INTO meta (name, value) VALUES ('incarnation', 1)", []).unwrap();
    drop(restored);
    assert_eq!(incarnation(&FileStore::open(&path).unwrap()), 1);
    assert_eq!(FileStore::open(&path).unwrap().store_incarnation(), 1);
}

#[test]
fn a_copy_with_its_mark_goes_on_and_one_without_begins_a_new_incarnation() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    let copy = folder.path().join("copy.db");
    copy_all(&path, &copy);
    assert_eq!(incarnation(&FileStore::open(&copy).unwrap()), 0);

    let moved = folder.path().join("moved.db");
    copy_all(&path, &moved);
    fs::remove_file(beside(&moved, "-mark")).unwrap();
    assert_eq!(incarnation(&FileStore::open(&moved).unwrap()), 1);
    assert_eq!(FileStore::open(&moved).unwrap().store_incarnation(), 1, "it was raised again");
}

#[test]
fn the_mark_of_another_store_is_no_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    let other = folder.path().join("other.db");
    drop(FileStore::open(&other).unwrap());
    fs::copy(beside(&path, "-mark"), beside(&other, "-mark")).unwrap();
    FileStore::open(&other).unwrap().enqueue(2, plain());
    FileStore::open(&other).unwrap().job(JobId::from_u128(2));
}

#[test]
fn a_mark_that_cannot_be_read_is_no_alarm() {
    let folder = tempfile::tempdir().unwrap();
    let path = killed_after_a_commit(folder.path());
    for text in ["", "windlass-mark 1 abc", "windlass-mark 2 a 0 0\n"] {
        fs::write(beside(&path, "-mark"), text).unwrap();
        FileStore::open(&path).unwrap().job(JobId::from_u128(1));
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_is_removed_or_replaced_while_it_is_served_stops_the_store() {
    for (ending, replaced) in [("", false), ("", true), ("-wal", false), ("-wal", true)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("w.db");
        let test = FileStore::open(&path).unwrap();
        test.enqueue(1, plain());
        let file = beside(&path, ending);
        fs::rename(&file, beside(&path, "-gone")).unwrap();
        if replaced {
            fs::copy(beside(&path, "-gone"), &file).unwrap();
        }
        let commit = || {
            let writes = vec![write(enqueue(2, plain()))];
            test.runtime.block_on(test.store.commit(writes.into())).unwrap_err()
        };
        let (first, later) = (commit(), commit());
        assert_eq!((first.code(), later.code()), ("STORE_STOPPED", "STORE_STOPPED"));
        let health = test.runtime.block_on(test.store.health()).unwrap_err();
        assert_eq!(health.code(), "STORE_STOPPED");
        let said = first.to_string();
        assert!(said.contains("was removed or replaced while it was in use"), "{said}");
    }
}

/// Nothing is acknowledged that a file which was cut would have lost.
#[test]
fn a_database_that_is_truncated_while_it_is_served_stops_the_store() {
    for keeps in [0, 50, 4096, 8192] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("w.db");
        let test = FileStore::open(&path).unwrap();
        test.enqueue(1, plain());
        drop(test);
        // All of it is in the file now.
        let test = FileStore::open(&path).unwrap();
        test.enqueue(2, plain());
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(keeps).unwrap();
        let writes = vec![write(enqueue(3, plain()))];
        let Err(error) = test.runtime.block_on(test.store.commit(writes.into())) else {
            panic!("a job was acknowledged into a file of {keeps} bytes")
        };
        // SQLite notices by itself if it has to read what is gone.
        let said = error.to_string();
        let is_noticed = error.code() == "STORE_STOPPED" && said.contains("was truncated while");
        assert!(is_noticed || error.code() == "STORE_DAMAGED", "{keeps} bytes: {said}");
        let again = test.runtime.block_on(test.store.health());
        assert_eq!(again.unwrap_err().code(), "STORE_STOPPED");
    }
}

/// A user makes the file shorter with tables of their own: that is no loss.
#[test]
fn a_vacuum_of_the_users_is_no_loss() {
    let test = FileStore::new();
    test.enqueue(1, plain());
    let users = test.sql();
    users.execute_batch("CREATE TABLE mine (text)").unwrap();
    users.execute("INSERT INTO mine SELECT hex(zeroblob(500000))", []).unwrap();
    users.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    test.enqueue(2, plain());
    let before = fs::metadata(&test.path).unwrap().len();
    users.execute_batch("DROP TABLE mine; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    assert!(fs::metadata(&test.path).unwrap().len() < before, "it is shorter");
    test.enqueue(3, plain());
    test.job(JobId::from_u128(3));
}
