//! `windlass doctor`: what is well is said to be, and each fault that is planted is found.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use windlass_store::rusqlite::Connection;
use windlass_testkit::postgres::Cluster;

use crate::{
    serving::{Server, until},
    shell::Shell,
};

/// A shell with a database in it that has a job.
fn shell() -> Shell {
    let shell = Shell::new();
    shell.quiet("windlass token list");
    let made = shell.quiet("windlass job add send_mail");
    assert_eq!(made.code, 0, "{}", made.stderr);
    shell
}

fn sql(shell: &Shell, sql: &str) {
    let file = shell.folder().join("windlass.db");
    Connection::open(file).and_then(|it| it.execute_batch(sql)).expect("it can be planted");
}

/// What is not well, as (check, state, what): each has a remedy.
fn findings(shell: &Shell, args: &str) -> Vec<(String, String, String)> {
    let ran = shell.quiet(&format!("windlass doctor -o json {args}"));
    let told = ran.json();
    let checks = told["checks"].as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let found: Vec<_> = checks
        .filter(|check| check["state"] != "ok")
        .map(|check| {
            assert!(!text(&check["remedy"]).is_empty(), "{check}");
            (text(&check["check"]), text(&check["state"]), text(&check["what"]))
        })
        .collect();
    let is_bad = found.iter().any(|(_, state, _)| state == "bad");
    assert_eq!((told["healthy"] == json!(!is_bad), ran.code), (true, i32::from(is_bad)), "{told}");
    found
}

/// The one finding: its check, whether it is bad, and words of it.
fn check(shell: &Shell, args: &str, expected: (&str, &str, &str)) {
    let found = findings(shell, args);
    let [(check, state, what)] = &found[..] else { panic!("not one finding: {found:?}") };
    assert_eq!((check.as_str(), state.as_str()), (expected.0, expected.1), "{what}");
    assert!(what.contains(expected.2), "{what}");
}

#[test]
fn what_is_well_is_said_to_be() {
    let mut shell = shell();
    shell.run("windlass doctor | sed -E 's/[0-9.]+ (k|M|G|T)?B/SIZE/g'");
    fs::write(shell.folder().join("windlass.toml"), "[server]\ngrace_ms = 5000\n").unwrap();
    let quiet = "sed -E 's/[0-9.]+ (k|M|G|T)?B/SIZE/g'";
    shell.run(&format!("windlass doctor --deep --config windlass.toml | {quiet}"));
    shell.about("What is not well.");
    let file = shell.folder().join("windlass.db");
    let plant = "
        DROP INDEX jobs_ready; DROP TABLE progress;
        UPDATE log SET at = at + 86400000000 * 36500;
        INSERT INTO inbox_set_aside (found_at, why, op) VALUES (5, 'op: it is no JSON', 'x')";
    Connection::open(file).unwrap().execute_batch(plant).unwrap();
    fs::write(shell.folder().join("windlass.toml"), "[server]\n\ngrace_mss = 5000\n").unwrap();
    let dates =
        "s/of 21[^,]*, [0-9dhms]+ from/of THEN, LONG from/; s/meet, in [0-9dhms]+/meet, in LONG/";
    // So wide that no line is broken: where it would be depends on the date.
    shell.columns(400);
    shell.run(&format!("windlass doctor --config windlass.toml | {quiet} | sed -E '{dates}'"));
    shell.columns(100);
    shell.about("As a health check it says little, and ends with 1.");
    shell.run("windlass doctor > /dev/null");
    shell.about("What is not there.");
    shell.run("windlass doctor --store sqlite:other.db");
    shell.run("windlass doctor --server http://127.0.0.1:1");
    shell.run("windlass doctor --server http://127.0.0.1:1 -o json");
    shell.finish("doctor");
}

#[test]
fn a_clock_that_was_set_back_is_found() {
    let shell = shell();
    assert!(findings(&shell, "").is_empty());
    sql(&shell, "UPDATE log SET at = at + 3600000000");
    check(&shell, "", ("clock", "note", "a tenth slower until they meet, in 9h"));
}

#[test]
fn a_missing_index_and_a_missing_table_are_found() {
    let shell = shell();
    sql(&shell, "DROP INDEX jobs_timer; DROP INDEX sessions_lapsed");
    check(&shell, "", ("schema", "bad", "it lacks index jobs_timer, index sessions_lapsed"));
    let shell = self::shell();
    sql(&shell, "DROP TABLE marks; DROP VIEW events");
    check(&shell, "", ("schema", "bad", "it lacks view events, table marks"));
}

/// A database that an older version made, in the place of the one of the shell.
fn golden(shell: &Shell, version: u32) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/golden");
    for ending in ["", "-mark"] {
        let from = folder.join(format!("v{version}.db{ending}"));
        fs::copy(from, shell.folder().join(format!("windlass.db{ending}")))
            .expect("it can be copied");
    }
}

#[test]
fn an_old_schema_is_found_and_left_as_it_is() {
    for version in [1, 5] {
        let shell = Shell::new();
        golden(&shell, version);
        let before = fs::read(shell.folder().join("windlass.db")).unwrap();
        let expected = format!("it is at step {version} of 10");
        check(&shell, "", ("schema", "note", &expected));
        assert_eq!(fs::read(shell.folder().join("windlass.db")).unwrap(), before);
    }
}

#[test]
fn a_newer_schema_is_found() {
    let shell = shell();
    sql(&shell, "PRAGMA user_version = 99");
    check(&shell, "", ("schema", "bad", "it is at step 99, and this program knows 10"));
}

#[test]
fn a_leaked_lease_and_an_open_letter_are_found() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let job = server.enqueue(&json!({"kind": "lost"}));
    let claim = json!({"worker_id": "w1", "kinds": ["lost"], "lease_ms": 5_000, "start": true});
    let (status, leases) = server.call("POST", "/api/v1/claims", Some(&claim));
    assert_eq!(
        (status, leases["leases"][0]["job"]["job_id"] == job.as_str()),
        (200, true),
        "{leases}"
    );
    let other = server.enqueue(&json!({"kind": "bad"}));
    let path = format!("/api/v1/internal/jobs/{other}/run?force_fail=true");
    assert_eq!(server.call("POST", &path, None).0, 200);
    check(&shell, "", ("letters", "note", "a dead letter is open"));
    server.kill();
    // An hour passes.
    sql(&shell, "UPDATE sessions SET lapses_at = lapses_at - 3600000000 WHERE worker = 'w1'");
    let found = findings(&shell, "");
    assert_eq!((found[0].0.as_str(), found[0].1.as_str()), ("leases", "bad"), "{found:?}");
    assert!(found[0].2.starts_with("a job is held by a worker that is gone, w1 for"), "{found:?}");
    // A server does what the remedy says.
    let server = Server::start(shell.folder(), "");
    until("the lease is taken back", || findings(&shell, "").iter().all(|it| it.0 != "leases"));
    server.stop();
}

#[test]
fn an_old_copy_and_a_deleted_log_are_found() {
    let shell = shell();
    let file = shell.folder().join("windlass.db");
    let old = fs::read(&file).unwrap();
    shell.quiet("windlass job add send_mail");
    fs::write(&file, old).unwrap();
    check(&shell, "", ("store", "bad", "has lost what was acknowledged"));
    // One whose log was deleted while it had not been folded in.
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    for _ in 0..3 {
        server.enqueue(&json!({}));
    }
    // The mark is written once a second.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    server.enqueue(&json!({}));
    server.kill();
    fs::remove_file(shell.folder().join("windlass.db-wal")).expect("it was not folded in");
    let found = findings(&shell, "");
    assert!(found.iter().any(|it| it.0 == "store" || it.0 == "schema"), "{found:?}");
}

#[test]
fn a_broken_chain_is_found_by_a_deep_look() {
    let shell = shell();
    sql(&shell, "UPDATE log SET events = replace(events, '\"enqueued\"', '\"enqueueD\"')");
    assert!(findings(&shell, "").is_empty());
    let ran = shell.quiet("windlass doctor --deep -o json");
    let told = ran.json();
    assert_eq!((ran.code, &told["healthy"]), (1, &json!(false)), "{told}");
    assert!(!told["violations"].as_array().expect("a list").is_empty(), "{told}");
}

#[test]
fn a_row_that_was_set_aside_is_found() {
    let shell = shell();
    sql(&shell, "INSERT INTO inbox_set_aside (found_at, why, op) VALUES (5, 'no JSON', 'x')");
    check(&shell, "", ("inbox", "bad", "a row of it was set aside"));
}

#[test]
fn what_is_no_database_is_found() {
    let shell = Shell::new();
    fs::write(shell.folder().join("windlass.db"), "no database, whatever its name says").unwrap();
    check(&shell, "", ("store", "bad", "it is not a database"));
}

/// A config in the folder of the shell.
fn config(shell: &Shell, text: &str, mode: u32) -> PathBuf {
    let path = shell.folder().join("w.toml");
    fs::write(&path, text).expect("it can be written");
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(&path, mode).expect("it is ours");
    path
}

#[test]
fn a_config_that_cannot_be_used_is_found() {
    let shell = shell();
    check(&shell, "--config none.toml", ("config", "bad", "cannot read none.toml"));
    // Whoever runs tests may be allowed to read everything, but nobody can read a folder.
    check(&shell, "--config .", ("config", "bad", "cannot read ."));
    config(&shell, "[server]\nlisten = \"127.0.0.1:1\"\ngrace = 5\n", 0o600);
    check(&shell, "--config w.toml", ("config", "bad", "line 3: there is no key \"grace\" here"));
    config(&shell, "[server]\ngrace_ms = 0\n", 0o600);
    check(&shell, "--config w.toml", ("config", "bad", "it must be from 1 to 3600000"));
    config(&shell, "", 0o666);
    check(&shell, "--config w.toml", ("config", "bad", "can be written by others"));
    let hook =
        "[[webhooks]]\nname = \"x\"\nurl = \"https://e.com\"\nsecret = \"sixteen bytes, or\"\n";
    config(&shell, hook, 0o644);
    check(&shell, "--config w.toml", ("config", "note", "others can read it"));
    config(&shell, hook, 0o600);
    assert!(findings(&shell, "--config w.toml").is_empty());
}

#[test]
fn a_server_is_asked_too() {
    let shell = Shell::new();
    check(&shell, "--server http://127.0.0.1:1", ("server", "bad", "no answer from"));
    let alerts = "[alerts]\ninvalid_transitions = 1\nlook_every_ms = 100\n";
    let server = Server::start(shell.folder(), alerts);
    let told = shell.quiet("windlass doctor -o json").json().to_string();
    assert!(told.contains("answers and takes work") && told.contains("there is none"), "{told}");
    let job = server.enqueue(&json!({}));
    let cancel = format!("/api/v1/jobs/{job}/cancel");
    server.call("POST", &cancel, None);
    until("an alert", || {
        server.call("POST", &cancel, None);
        !findings(&shell, "").is_empty()
    });
    // It is shown, and the store is well: whoever runs this in a script hears 0.
    check(&shell, "", ("alerts", "note", "P1 "));
    server.stop();
}

#[test]
fn faults_of_a_store_on_postgresql_are_found() {
    let shell = Shell::new();
    let port = Cluster::shared().port();
    let store = |schema: &str| {
        format!("--store 'postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}'")
    };
    check(&shell, &store("doctor"), ("schema", "note", "there is no store in it yet"));
    let made = shell.quiet(&format!("windlass token list {}", store("doctor")));
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(findings(&shell, &store("doctor")).is_empty());
    let psql = |sql: &str| Cluster::shared().psql(sql);
    psql("DROP INDEX doctor.jobs_timer; DROP TABLE doctor.marks; DROP TYPE doctor.new_job");
    let lacks = "it lacks table marks, type new_job, index jobs_timer";
    check(&shell, &store("doctor"), ("schema", "bad", lacks));
    psql("UPDATE doctor.meta SET value = '5' WHERE name = 'schema'");
    check(&shell, &store("doctor"), ("schema", "note", "it is at step 5 of 11"));
    psql("UPDATE doctor.meta SET value = '99' WHERE name = 'schema'");
    check(&shell, &store("doctor"), ("schema", "note", "and can serve it"));
    psql("UPDATE doctor.meta SET value = '99' WHERE name = 'schema_served_by'");
    check(
        &shell,
        &store("doctor"),
        ("schema", "bad", "it is at step 99, and this program knows 11"),
    );
    shell.quiet(&format!("windlass token list {}", store("doctor2")));
    psql("INSERT INTO doctor2.feed SELECT 1, 1, 1, now() + '1 hour'");
    check(&shell, &store("doctor2"), ("clock", "note", "a tenth slower until they meet, in 9h"));
    psql(
        "DELETE FROM doctor2.feed; INSERT INTO doctor2.inbox_set_aside (found_at, why) VALUES (now(), 'x')",
    );
    check(&shell, &store("doctor2"), ("inbox", "bad", "a row of it was set aside"));
    let gone = "--store 'postgres://postgres@127.0.0.1:1/postgres'";
    check(&shell, gone, ("store", "bad", "cannot open"));
}
