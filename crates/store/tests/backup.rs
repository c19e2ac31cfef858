//! Backup and restore: a copy of one moment while others write, and a restored store that grants no epoch
//! twice.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
#[path = "backup/restores.rs"]
mod restores;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use common::*;
use rusqlite::Connection;
use tempfile::TempDir;
use windlass_kernel::{JobId, Timestamp};
use windlass_store::{
    Error,
    sqlite::{self, BackedUp, BackupOptions, Restored, check},
};

const PLAIN: BackupOptions = BackupOptions { force: false, deep: false };
const FORCE: BackupOptions = BackupOptions { force: true, deep: false };
const DEEP: BackupOptions = BackupOptions { force: false, deep: true };

fn backup(source: &Path, target: &Path, options: BackupOptions) -> Result<BackedUp, Error> {
    sqlite::backup(source, target, options, &mut |_| {})
}

fn restore(source: &Path, target: &Path, options: BackupOptions) -> Result<Restored, Error> {
    let now = Timestamp::from_micros(START);
    sqlite::restore(source, target, options, now, &mut |_| {})
}

/// A folder whose path is its real one, for messages name files by that.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

/// A store with one queued job, closed.
fn small(path: &Path) {
    FileStore::open(path).unwrap().enqueue(1, plain());
}

/// Some megabytes of jobs, so that a copy takes a while.
fn fill(test: &FileStore, jobs: u128) {
    let text = format!("\"{}\"", "x".repeat(40_000));
    let numbers: Vec<u128> = (1_000_000..1_000_000 + jobs).collect();
    for some in numbers.chunks(50) {
        let new = || with_payload(&text);
        test.commit(some.iter().map(|number| write(enqueue(*number, new()))).collect());
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn check_clean(path: &Path) {
    let report = check(path).unwrap();
    assert!(report.is_clean(), "{report}");
}

#[test]
fn under_a_constant_load_a_backup_is_the_store_of_one_moment() {
    let (_folder, at) = folder();
    let test = FileStore::open(&at.join("w.db")).unwrap();
    fill(&test, 300);
    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load = {
        let (store, runtime) = (test.store.clone(), test.runtime.handle().clone());
        let (stop, written) = (stop.clone(), written.clone());
        thread::spawn(move || {
            for number in 1.. {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let writes = vec![write(enqueue(number, plain()))];
                runtime.block_on(store.commit(writes.into())).unwrap();
                written.store(u64::try_from(number).unwrap(), Ordering::SeqCst);
            }
        })
    };
    for round in 0..2 {
        while written.load(Ordering::SeqCst) < 5 {
            thread::yield_now();
        }
        let before = written.load(Ordering::SeqCst);
        let copy = at.join(format!("copy-{round}.db"));
        let (mut steps, mut last) = (0, 0);
        let made = sqlite::backup(&test.path, &copy, DEEP, &mut |copied| {
            assert!(copied.bytes >= last && copied.bytes <= copied.of, "it began anew");
            (steps, last) = (steps + 1, copied.bytes);
            thread::sleep(Duration::from_millis(5));
        })
        .unwrap();
        let after = written.load(Ordering::SeqCst);
        assert!(steps > 8 && after > before, "{steps} steps, from {before} to {after}");
        let copied = Connection::open(&copy).unwrap();
        let sql = "SELECT count(*) FROM jobs WHERE length(payload) < 100";
        let jobs: u64 = copied.query_row(sql, [], |row| row.get(0)).unwrap();
        assert!(jobs >= before && jobs <= after + 1, "{jobs} jobs, from {before} to {after}");
        assert_eq!(made.last_event, jobs + 300);
        assert_eq!(made.bytes, fs::metadata(&copy).unwrap().len());
    }
    stop.store(true, Ordering::SeqCst);
    load.join().unwrap();
}

#[test]
fn a_store_that_another_process_serves_is_backed_up_whole() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    let owner = Killed::start(child("child_commits_without_end", &path));
    let made = backup(&path, &copy, DEEP).unwrap();
    assert!(made.last_event >= 100, "{made:?}");
    assert_eq!(refused(&path).0.code(), "STORE_IN_USE", "the owner still has it");
    drop(owner);
    // After a kill it can be backed up as well, with what is only in its log.
    let made = backup(&path, &copy, BackupOptions { force: true, deep: true }).unwrap();
    let test = FileStore::open(&path).unwrap();
    let sql = "SELECT max(id + count - 1) FROM log";
    let last: u64 = test.sql().query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(made.last_event, last);
}

#[test]
fn child_commits_without_end() {
    let Some(path) = child_path() else { return };
    let test = FileStore::open(&path).unwrap();
    fill(&test, 100);
    println!("ready");
    for number in 1.. {
        test.enqueue(number, plain());
    }
}

#[test]
fn a_backup_stands_alone_and_opens() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("backups.db"));
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    backup(&path, &copy, DEEP).unwrap();
    let beside: Vec<_> = names(&at).into_iter().filter(|it| it.starts_with("backups")).collect();
    assert_eq!(beside, ["backups.db"]);
    FileStore::open(&copy).unwrap().job(JobId::from_u128(1));
}

/// It is refused with this code and these words, and nothing was left or changed.
fn check_refused<T: std::fmt::Debug>(result: Result<T, Error>, code: &str, words: &str) {
    let error = result.unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    let said = format!("{error}: {cause}");
    assert_eq!(error.code(), code, "{said}");
    assert!(said.contains(words), "{said}");
}

#[test]
fn a_backup_is_not_written_where_something_is() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    small(&path);
    fs::write(&copy, "precious").unwrap();
    let before = names(&at);
    check_refused(backup(&path, &copy, PLAIN), "FILE_EXISTS", "copy.db is there already");
    assert_eq!(fs::read(&copy).unwrap(), b"precious");
    for options in [PLAIN, FORCE] {
        check_refused(backup(&path, &path, options), "STORE_CANNOT_OPEN", "the database itself");
        check_refused(backup(&path, &at, options), "STORE_CANNOT_OPEN", "it is a folder");
        let other = at.join("other.db");
        drop(FileStore::open(&other).unwrap());
        check_refused(backup(&path, &other, options), "STORE_CANNOT_OPEN", "a database in use");
    }
    assert!(names(&at).iter().all(|name| !name.ends_with(".part")), "{before:?}");
    backup(&path, &copy, FORCE).unwrap();
    check_clean(&copy);
    let nowhere = at.join("missing/copy.db");
    check_refused(backup(&path, &nowhere, PLAIN), "STORE_CANNOT_OPEN", "No such file");
}

/// Files that are no backup of ours, with what is said about them.
fn no_backups(at: &Path) -> Vec<(PathBuf, &'static str, &'static str)> {
    fs::write(at.join("text.db"), "not a database, but long enough\n".repeat(200)).unwrap();
    fs::write(at.join("empty.db"), "").unwrap();
    let other = Connection::open(at.join("cake.db")).unwrap();
    other.execute_batch("CREATE TABLE cake (eggs); PRAGMA user_version = 1").unwrap();
    small(&at.join("newer.db"));
    let newer = Connection::open(at.join("newer.db")).unwrap();
    newer.pragma_update(None, "user_version", 999).unwrap();
    let made = FileStore::open(&at.join("made.db")).unwrap();
    fill(&made, 50);
    drop(made);
    let mut bytes = fs::read(at.join("made.db")).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    // A page of rows. One on which a large value ends may be empty, as far as the database knows.
    let rows = (middle..bytes.len()).step_by(4096).find(|at| bytes[*at] == 13).unwrap();
    bytes[rows..rows + 4096].fill(0);
    fs::write(at.join("worn.db"), &bytes).unwrap();
    bytes.truncate(middle);
    fs::write(at.join("cut.db"), bytes).unwrap();
    [
        ("text.db", "STORE_CANNOT_OPEN", "not a database"),
        ("empty.db", "STORE_CANNOT_OPEN", "not a database of Windlass"),
        ("cake.db", "STORE_CANNOT_OPEN", "another program"),
        ("newer.db", "STORE_NEWER", "newer than this program"),
        ("cut.db", "STORE_DAMAGED", "cut.db"),
        ("worn.db", "STORE_DAMAGED", "worn.db"),
        ("missing.db", "STORE_CANNOT_OPEN", "No such file"),
    ]
    .map(|(name, code, words)| (at.join(name), code, words))
    .into()
}

#[test]
fn what_is_no_sound_database_is_neither_backed_up_nor_restored() {
    let (_folder, at) = folder();
    let target = at.join("target.db");
    for (path, code, words) in no_backups(&at) {
        check_refused(restore(&path, &target, FORCE), code, words);
        assert!(!target.exists());
        if code != "STORE_DAMAGED" {
            check_refused(backup(&path, &target, PLAIN), code, words);
        } else {
            backup(&path, &at.join("bad.db"), PLAIN).unwrap_err();
            assert!(!at.join("bad.db").exists());
        }
    }
    assert!(names(&at).iter().all(|name| !name.ends_with(".part")), "{:?}", names(&at));
}

#[test]
fn a_store_that_breaks_a_rule_is_refused_when_it_is_looked_at_closely() {
    let (_folder, at) = folder();
    let path = at.join("w.db");
    small(&path);
    let shell = Connection::open(&path).unwrap();
    shell.execute("UPDATE jobs SET version = 7", []).unwrap();
    drop(shell);
    check_refused(backup(&path, &at.join("copy.db"), DEEP), "STORE_DAMAGED", "version");
    assert!(!at.join("copy.db").exists());
    backup(&path, &at.join("copy.db"), PLAIN).unwrap();
    let deep = restore(&at.join("copy.db"), &at.join("new.db"), DEEP);
    check_refused(deep, "STORE_DAMAGED", "version");
    assert!(!at.join("new.db").exists());
}

#[test]
fn a_target_without_room_is_told_and_nothing_is_left() {
    let (_folder, at) = folder();
    let test = FileStore::open(&at.join("w.db")).unwrap();
    fill(&test, 100);
    drop(test);
    fs::create_dir(at.join("small")).unwrap();
    let script = "mount -t tmpfs -o size=1m none \"$FOLDER/small\"";
    run(prepared_child(script, "child_finds_no_room", &at.join("w.db")));
    let script = "trap '' XFSZ; ulimit -f 1024";
    run(prepared_child(script, "child_finds_no_room", &at.join("w.db")));
}

#[test]
fn child_finds_no_room() {
    let Some(path) = child_path() else { return };
    let small = path.with_file_name("small");
    let target = small.join("copy.db");
    for error in
        [backup(&path, &target, PLAIN).unwrap_err(), restore(&path, &target, PLAIN).unwrap_err()]
    {
        assert!(matches!(error.code(), "DISK_FULL" | "STORE_CANNOT_OPEN"), "{error:?}");
        let left: Vec<_> = names(&small).into_iter().filter(|it| !it.ends_with("-lock")).collect();
        assert!(left.is_empty(), "{left:?}");
        fs::remove_file(small.join("copy.db-lock")).unwrap_or_default();
    }
}
