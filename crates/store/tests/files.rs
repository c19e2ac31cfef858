//! The file: who may open it, and what is refused before it is touched.

mod common;

use std::{
    fs,
    path::Path,
    process,
    sync::{Arc, atomic::AtomicI64},
};

use common::*;
use rusqlite::Connection;
use windlass_store::{Error, Owner};

#[test]
fn a_second_handle_is_refused_and_told_who_has_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let now = Arc::new(AtomicI64::new(START));
    let first = open(&path, &now, Some("http://127.0.0.1:8080")).unwrap();
    let owner =
        Owner { process: Some(process::id()), address: Some("http://127.0.0.1:8080".to_owned()) };
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    for name in [&path, &link, &folder.path().join(".").join("w.db")] {
        let (error, said) = refused(name);
        assert_eq!(error.code(), "STORE_IN_USE");
        assert!(matches!(error, Error::InUse { owner: found } if found == owner), "{said}");
    }
    drop(first);
    FileStore::open(&path).unwrap();
}

/// By another name, and after its lock file was deleted, the database is still the same one.
#[test]
fn a_hard_link_or_a_deleted_lock_file_lets_nobody_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let link = folder.path().join("link.db");
    let is_in_use = |name: &Path| {
        let (error, said) = refused(name);
        assert_eq!(error.code(), "STORE_IN_USE", "{said}");
    };
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    fs::hard_link(&path, &link).unwrap();
    is_in_use(&link);
    // Whoever was refused has not taken the locks of the one who is in.
    test.enqueue(2, plain());
    fs::remove_file(folder.path().join("w.db-lock")).unwrap();
    is_in_use(&path);
    test.enqueue(3, plain());
    drop(test);
    let other = Killed::start(child("child_holds_the_file", &path));
    is_in_use(&link);
    fs::remove_file(folder.path().join("w.db-lock")).unwrap();
    is_in_use(&path);
    drop(other);
    let test = FileStore::open(&path).unwrap();
    for number in 1..=3 {
        test.job(windlass_kernel::JobId::from_u128(number));
    }
}

#[test]
fn a_process_that_was_killed_holds_no_lock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let other = Killed::start(child("child_holds_the_file", &path));
    let owner = Owner { process: Some(other.id()), address: Some("unix:/run/windlass".to_owned()) };
    let (error, said) = refused(&path);
    assert!(matches!(error, Error::InUse { owner: found } if found == owner), "{said}");
    drop(other);
    FileStore::open(&path).unwrap();
}

#[test]
fn child_holds_the_file() {
    let Some(path) = child_path() else { return };
    let now = Arc::new(AtomicI64::new(START));
    let _store = open(&path, &now, Some("unix:/run/windlass")).unwrap();
    wait_to_be_killed();
}

#[test]
fn closing_folds_the_log_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    assert!(folder.path().join("w.db-wal").exists());
    drop(test);
    assert!(!folder.path().join("w.db-wal").exists());
}

/// Opening this is refused with this code, and the message names the file and has these words.
fn check_refused(path: &Path, code: &str, words: &str) {
    let (error, said) = refused(path);
    assert_eq!(error.code(), code, "{said}");
    assert!(said.contains(words), "{said}");
    assert!(said.contains(&path.display().to_string()), "{said}");
}

#[test]
fn what_is_no_database_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().canonicalize().unwrap().join(name);
    check_refused(&at(""), "STORE_CANNOT_OPEN", "it is a folder");
    check_refused(&at("missing/w.db"), "STORE_CANNOT_OPEN", "No such file");
    check_refused(Path::new("/dev/null"), "STORE_CANNOT_OPEN", "it is not a plain file");
    std::os::unix::fs::symlink("nowhere", at("link")).unwrap();
    check_refused(&at("link"), "STORE_CANNOT_OPEN", "it is a link that leads nowhere");

    fs::write(at("text.db"), "not a database, but long enough to look like one\n".repeat(100))
        .unwrap();
    check_refused(&at("text.db"), "STORE_CANNOT_OPEN", "it is not a database");

    let other = Connection::open(at("other.db")).unwrap();
    other.execute_batch("CREATE TABLE cake (eggs); PRAGMA user_version = 1").unwrap();
    drop(other);
    let before = fs::read(at("other.db")).unwrap();
    check_refused(&at("other.db"), "STORE_CANNOT_OPEN", "another program");
    assert_eq!(fs::read(at("other.db")).unwrap(), before, "it was written to");
}

#[test]
fn a_file_called_memory_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(":memory:");
    FileStore::open(&path).unwrap().enqueue(1, plain());
    FileStore::open(&path).unwrap().job(windlass_kernel::JobId::from_u128(1));
}

#[test]
fn a_newer_database_is_refused_and_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.db");
    drop(FileStore::open(&path).unwrap());
    let newer = Connection::open(&path).unwrap();
    newer.pragma_update(None, "user_version", 999).unwrap();
    drop(newer);
    let before = fs::read(&path).unwrap();
    let (error, said) = refused(&path);
    assert!(matches!(error, Error::Newer { found: 999, known: 10 }), "{said}");
    assert_eq!(error.code(), "STORE_NEWER");
    assert_eq!(fs::read(&path).unwrap(), before, "it was written to");
}

#[test]
fn a_cut_database_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("w.db");
    drop(FileStore::open(&path).unwrap());
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    check_refused(&path, "STORE_DAMAGED", "malformed");
}

#[test]
fn what_cannot_be_written_to_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap().join("w.db");
    drop(FileStore::open(&path).unwrap());
    let test = "child_finds_it_cannot_write";
    let file = "mount --bind \"$FOLDER/w.db\" \"$FOLDER/w.db\"
        mount -o remount,bind,ro \"$FOLDER/w.db\"";
    let mut child = prepared_child(file, test, &path);
    child.env("WORDS", "it cannot be written to");
    run(child);
    let all = "mount --bind \"$FOLDER\" \"$FOLDER\"
        mount -o remount,bind,ro \"$FOLDER\"";
    let mut child = prepared_child(all, test, &path);
    child.env("WORDS", "Read-only file system");
    run(child);
}

#[test]
fn child_finds_it_cannot_write() {
    let Some(path) = child_path() else { return };
    check_refused(&path, "STORE_CANNOT_OPEN", &std::env::var("WORDS").unwrap());
}
