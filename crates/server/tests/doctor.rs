//! `windlass doctor`: a healthy database, a damaged one, and what is none.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

/// A copy of the first database that was ever kept, in a folder of its own.
fn database() -> (TempDir, PathBuf) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/golden/v1.db");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("windlass.db");
    fs::copy(golden, &path).expect("it can be copied");
    (folder, path)
}

fn doctor(store: &str, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(["doctor", "--store", store]).args(more).output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints text")
}

#[test]
fn a_healthy_database_is_said_to_be_healthy() {
    let (_folder, path) = database();
    let run = doctor(&format!("sqlite:{}", path.display()), &["--deep"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert!(text(&run.stdout).ends_with("Every rule holds.\n"), "{}", text(&run.stdout));
    let run = doctor(&format!("sqlite:{}", path.display()), &["--deep", "-o", "json"]);
    let found: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&found["healthy"], &found["jobs"]), (&true.into(), &11.into()));
}

#[test]
fn a_byte_that_was_changed_is_found() {
    let (_folder, path) = database();
    let mut bytes = fs::read(&path).unwrap();
    let cause = b"worker_claim";
    let at = bytes.windows(cause.len()).position(|it| it == cause).unwrap();
    bytes[at] = b'W';
    fs::write(&path, bytes).unwrap();
    let run = doctor(&format!("sqlite:{}", path.display()), &["--deep"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stdout));
    assert!(text(&run.stdout).contains("restore the last backup"), "{}", text(&run.stdout));
}

#[test]
fn a_row_of_the_inbox_that_was_set_aside_is_no_reason_to_restore_a_backup() {
    let (_folder, path) = database();
    let sql =
        "INSERT INTO inbox_set_aside (found_at, why, op) VALUES (5, 'op: it is no JSON', 'x')";
    let shell = windlass_store::rusqlite::Connection::open(&path).unwrap();
    shell.execute(sql, []).unwrap();
    let run = doctor(&format!("sqlite:{}", path.display()), &["--deep"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stderr));
    let said = text(&run.stdout);
    assert!(said.contains("could not be promoted: op: it is no JSON"), "{said}");
    assert!(said.contains("All else holds.") && !said.contains("backup"), "{said}");
}

#[test]
fn what_is_no_database_is_told_apart() {
    let (folder, _path) = database();
    let missing = format!("sqlite:{}", folder.path().join("none.db").display());
    let run = doctor(&missing, &["--deep"]);
    assert_eq!(run.status.code(), Some(3));
    assert!(text(&run.stderr).contains("there is no database"), "{}", text(&run.stderr));
    let garbage = folder.path().join("garbage.db");
    fs::write(&garbage, "not a database at all, whatever its name says").unwrap();
    let run = doctor(&format!("sqlite:{}", garbage.display()), &["--deep"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run.stdout));
    let run = doctor("mysql://localhost", &["--deep"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("--store sqlite:FILE"), "{}", text(&run.stderr));
}
