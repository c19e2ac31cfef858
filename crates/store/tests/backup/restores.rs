//! What a restore replaces, what it keeps, and that no epoch comes twice.

use std::{collections::BTreeSet, fs, path::Path, thread, time::Duration};

use rusqlite::Connection;
use windlass_kernel::{
    Epoch, Jitter, JobId, State, Timestamp,
    ops::{Expire, Expiry},
};
use windlass_store::sqlite;

use crate::{
    DEEP, FORCE, PLAIN, backup, check_clean, check_refused, common::*, folder, names, restore,
    small,
};

#[test]
fn a_store_in_use_or_already_there_is_not_replaced() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    backup(&path, &copy, PLAIN).unwrap();
    for options in [PLAIN, FORCE] {
        check_refused(restore(&copy, &path, options), "STORE_IN_USE", "process");
    }
    test.enqueue(2, plain());
    drop(test);
    check_refused(restore(&copy, &path, PLAIN), "FILE_EXISTS", "w.db is there already");
    check_refused(restore(&copy, &copy, FORCE), "STORE_CANNOT_OPEN", "the backup itself");
    FileStore::open(&path).unwrap().job(JobId::from_u128(2));
}

#[test]
fn what_was_replaced_is_kept_aside_whole() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    let owner = Killed::start(child("child_commits_without_end", &path));
    backup(&path, &copy, PLAIN).unwrap();
    // What comes after the copy is what the restore would lose.
    while number_of_jobs(&path) == number_of_jobs(&copy) {
        thread::yield_now();
    }
    drop(owner);
    assert!(fs::metadata(at.join("w.db-wal")).unwrap().len() > 0, "it has a log");
    let done = restore(&copy, &path, FORCE).unwrap();
    assert_eq!(done.kept_aside, Some(at.join("w.db.old-1")));
    let again = restore(&copy, &path, FORCE).unwrap();
    assert_eq!(again.kept_aside, Some(at.join("w.db.old-2")));
    assert!(again.restored.incarnation > done.restored.incarnation);
    check_clean(&path);
    // With its log and its mark: nothing that it had acknowledged is missing.
    let aside = FileStore::open(&at.join("w.db.old-1")).unwrap();
    assert_eq!(aside.store_incarnation(), 0);
    let restored = FileStore::open(&path).unwrap();
    let jobs = |test: &FileStore| {
        test.wait(test.store.counts(&Scope::Every)).iter().map(|it| it.2).sum::<u64>()
    };
    assert!(jobs(&aside) > jobs(&restored), "the load went on after the backup");
}

fn number_of_jobs(path: &Path) -> u64 {
    let sql = "SELECT count(*) FROM jobs";
    Connection::open(path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_restore_that_died_between_the_two_names_can_be_made_again() {
    // The database has gone, and its log has or has not; both are kept aside.
    for log_has_gone in [false, true] {
        let (_folder, at) = folder();
        let (path, copy) = (at.join("w.db"), at.join("copy.db"));
        let owner = Killed::start(child("child_commits_without_end", &path));
        backup(&path, &copy, PLAIN).unwrap();
        drop(owner);
        fs::remove_file(&path).unwrap();
        if log_has_gone {
            fs::remove_file(at.join("w.db-wal")).unwrap();
        }
        let done = restore(&copy, &path, PLAIN).unwrap();
        assert_eq!(done.kept_aside.is_some(), !log_has_gone);
        assert!(!at.join("w.db-wal").exists(), "a log of another database was left beside it");
        check_clean(&path);
        FileStore::open(&path).unwrap().enqueue(u128::MAX, plain());
    }
}

/// Claims the job, and notes its epoch.
fn claim(test: &FileStore, worker: &str, number: u128, epochs: &mut Vec<u64>) -> u64 {
    let granted = test.claim(worker, number, 1).remove(0);
    epochs.push(granted.job.epoch.get());
    granted.job.epoch.get()
}

fn lose_lease(test: &FileStore, job_id: JobId) {
    let (version, jitter) = (test.job(job_id).version, Jitter::NONE);
    test.op(Expire { job_id, version, what: Expiry::DeadSession, jitter }).unwrap();
}

#[test]
fn a_worker_from_before_a_restore_changes_nothing_and_no_epoch_is_granted_twice() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    let (mut epochs, id) = (Vec::new(), JobId::from_u128(1));
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    let old = claim(&test, "w1", 1, &mut epochs);
    backup(&path, &copy, DEEP).unwrap();
    lose_lease(&test, id);
    let lost = claim(&test, "w2", 2, &mut epochs);
    drop(test);

    for round in 0..3 {
        restore(&copy, &path, FORCE).unwrap();
        let test = FileStore::open(&path).unwrap();
        let new = claim(&test, "w3", 10 + round, &mut epochs);
        for stale in [old, lost] {
            let epoch = Epoch::new(stale);
            let refused = test.op(settle(id, epoch, succeeded())).unwrap_err();
            assert_eq!(refused.code(), "STALE_ATTEMPT");
        }
        if round == 2 {
            test.op(settle(id, Epoch::new(new), succeeded())).unwrap();
        }
        drop(test);
        check_clean(&path);
    }
    let different: BTreeSet<u64> = epochs.iter().copied().collect();
    assert_eq!(different.len(), epochs.len(), "an epoch was granted twice: {epochs:?}");
}

#[test]
fn a_backup_that_is_restored_twice_on_empty_disks_grants_no_epoch_twice() {
    let (_folder, at) = folder();
    let copy = at.join("copy.db");
    small(&at.join("w.db"));
    backup(&at.join("w.db"), &copy, PLAIN).unwrap();
    let mut incarnations = BTreeSet::new();
    for hour in 0..3 {
        let target = at.join(format!("disk-{hour}.db"));
        let now = Timestamp::from_micros(START).plus(Duration::from_secs(3600 * hour));
        sqlite::restore(&copy, &target, PLAIN, now, &mut |_| {}).unwrap();
        incarnations.insert(FileStore::open(&target).unwrap().store_incarnation());
    }
    assert_eq!(incarnations.len(), 3, "{incarnations:?}");
}

#[test]
fn what_was_kept_aside_opens_also_after_the_restored_one_was_served() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    small(&path);
    backup(&path, &copy, PLAIN).unwrap();
    FileStore::open(&path).unwrap().enqueue(2, plain());
    restore(&copy, &path, FORCE).unwrap();
    FileStore::open(&path).unwrap().enqueue(3, plain());
    FileStore::open(&at.join("w.db.old-1")).unwrap().job(JobId::from_u128(2));
}

#[test]
fn a_later_restore_has_a_later_incarnation_whatever_its_disk_knows() {
    let (_folder, at) = folder();
    let (path, copy, fresh) = (at.join("w.db"), at.join("copy.db"), at.join("fresh.db"));
    small(&path);
    backup(&path, &copy, PLAIN).unwrap();
    let hour = |hour: u64| Timestamp::from_micros(START).plus(Duration::from_secs(3600 * hour));
    sqlite::restore(&copy, &fresh, PLAIN, hour(0), &mut |_| {}).unwrap();
    let first = FileStore::open(&fresh).unwrap().store_incarnation();
    sqlite::restore(&copy, &path, FORCE, hour(1), &mut |_| {}).unwrap();
    let second = FileStore::open(&path).unwrap().store_incarnation();
    assert!(second > first, "{first}, then {second}");
}

#[test]
fn a_lease_in_the_backup_ends_with_the_restore() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    let test = FileStore::open(&path).unwrap();
    let id = test.enqueue(1, plain());
    test.enqueue(2, plain());
    let old = test.claim("w1", 1, 1).remove(0).job.epoch;
    backup(&path, &copy, PLAIN).unwrap();
    // After the backup another worker got the job and did it: that is what the restore undoes.
    lose_lease(&test, id);
    let new = test.claim("w2", 2, 1).remove(0).job.epoch;
    test.op(settle(id, new, succeeded())).unwrap();
    drop(test);

    restore(&copy, &path, FORCE).unwrap();
    let test = FileStore::open(&path).unwrap();
    assert_eq!(test.job(id).state, State::Interrupted);
    for epoch in [old, new] {
        let told = test.op(settle(id, epoch, succeeded())).unwrap_err();
        assert_eq!(told.code(), "STALE_ATTEMPT");
    }
    let mut granted = test.claim("w3", 3, 2);
    granted.retain(|it| it.job.id == id);
    assert!(granted[0].job.epoch > new);
    drop(test);
    check_clean(&path);
}

#[test]
fn a_lease_of_this_incarnation_outlives_a_restart() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    small(&path);
    backup(&path, &copy, PLAIN).unwrap();
    restore(&copy, &path, FORCE).unwrap();
    let test = FileStore::open(&path).unwrap();
    let granted = test.claim("w1", 1, 1).remove(0).job;
    drop(test);
    let test = FileStore::open(&path).unwrap();
    test.op(settle(granted.id, granted.epoch, succeeded())).unwrap();
}

#[test]
fn a_part_that_is_itself_the_backup_is_not_written_over() {
    let (_folder, at) = folder();
    let (path, part) = (at.join("w.db"), at.join("w.db.part"));
    small(&path);
    backup(&path, &part, PLAIN).unwrap();
    let before = fs::read(&part).unwrap();
    check_refused(restore(&part, &path, FORCE), "STORE_CANNOT_OPEN", "give it another name");
    assert!(fs::read(&part).unwrap() == before);
    // The other way round: a store that is called like the part of its backup.
    let store = at.join("x.db.part");
    small(&store);
    check_refused(backup(&store, &at.join("x.db"), PLAIN), "STORE_CANNOT_OPEN", "another name");
    check_clean(&store);
}

#[cfg(unix)]
#[test]
fn a_part_that_is_a_link_is_not_followed() {
    let (_folder, at) = folder();
    let (path, precious) = (at.join("w.db"), at.join("precious"));
    small(&path);
    fs::write(&precious, "mine").unwrap();
    std::os::unix::fs::symlink(&precious, at.join("copy.db.part")).unwrap();
    check_refused(backup(&path, &at.join("copy.db"), PLAIN), "STORE_CANNOT_OPEN", "a link");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
}

/// What a database holds is its owner's to read, and so is every copy of it.
#[cfg(unix)]
#[test]
fn every_file_that_is_made_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    let modes = |wanted: &[&str]| {
        let found = names(&at);
        for name in wanted {
            assert!(found.iter().any(|it| it == name), "{name} is not in {found:?}");
        }
        for name in found {
            let mode = fs::metadata(at.join(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name} has mode {mode:o}");
        }
    };
    let test = FileStore::open(&path).unwrap();
    test.enqueue(1, plain());
    modes(&["w.db", "w.db-wal", "w.db-shm", "w.db-lock"]);
    // A part that somebody left, readable by all, is taken over.
    fs::write(at.join("copy.db.part"), "left").unwrap();
    fs::set_permissions(at.join("copy.db.part"), fs::Permissions::from_mode(0o644)).unwrap();
    backup(&path, &copy, PLAIN).unwrap();
    modes(&["copy.db"]);
    drop(test);
    // A database of a version before was readable by all. Kept aside, it is not.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    restore(&copy, &path, FORCE).unwrap();
    modes(&["w.db", "w.db-mark", "w.db.old-1", "w.db.old-1-mark"]);
    drop(FileStore::open(&path).unwrap());
    modes(&["w.db"]);
}

/// Whoever hands you a backup can have put something into it.
#[test]
fn what_is_not_ours_in_a_backup_is_told() {
    let (_folder, at) = folder();
    let (path, copy) = (at.join("w.db"), at.join("copy.db"));
    small(&path);
    backup(&path, &copy, PLAIN).unwrap();
    assert_eq!(sqlite::survey(&path).unwrap().foreign, Vec::<String>::new());
    let trojan = "CREATE TABLE loot (t TEXT);
        CREATE VIEW spy AS SELECT id FROM jobs;
        CREATE TRIGGER steal AFTER INSERT ON payloads BEGIN INSERT INTO loot VALUES ('x'); END";
    let table = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'payload%'";
    let connection = Connection::open(&copy).unwrap();
    let payloads: String = connection.query_row(table, [], |row| row.get(0)).unwrap();
    connection.execute_batch(&trojan.replace("payloads", &payloads)).unwrap();
    drop(connection);
    let found = restore(&copy, &path, FORCE).unwrap().foreign;
    let trigger = format!("trigger steal on {payloads}");
    assert_eq!(found, ["table loot", &trigger, "view spy"]);
    assert_eq!(sqlite::survey(&path).unwrap().foreign, found);
}
