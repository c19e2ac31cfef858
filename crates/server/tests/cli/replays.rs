//! `windlass replay`.

use serde_json::{Value, json};
use windlass_testkit::postgres::Cluster;

use crate::shell::Shell;

#[test]
fn replays_are_lived_through_on_a_file() {
    let mut shell = Shell::new();
    shell.run("windlass replay all");
    shell.about("One, into a file that is kept.");
    shell.run("windlass replay rp-005 --store sqlite:replayed.db");
    shell.run("windlass job list --store sqlite:replayed.db");
    shell.about("What was there before is never touched.");
    shell.run("windlass replay RP-001 --store sqlite:replayed.db");
    shell.about("For programs.");
    shell.run("windlass replay RP-002 RP-004 -o jsonl");
    shell.about("What cannot be done is said with what to do.");
    shell.run("windlass replay RP-006");
    shell.run("windlass replay");
    shell.run("windlass replay all --store mysql://localhost");
    shell.finish("replays");
}

/// The same on both stores: nothing is left behind on the server.
#[test]
fn replays_are_lived_through_on_both_stores() {
    let shell = Shell::new();
    let postgres = format!("postgres://postgres@127.0.0.1:{}/postgres", Cluster::shared().port());
    let mut paths = Vec::new();
    for store in ["", &format!("--store '{postgres}?schema=taken'")] {
        let ran = shell.quiet(&format!("windlass replay all -o json {store}"));
        assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
        let told = ran.json();
        let replays = told["replays"].as_array().expect("a list").clone();
        assert_eq!((told["passed"].clone(), replays.len()), (json!(true), 5));
        assert!(replays.iter().all(|it| it["failures"] == json!([])), "{told}");
        let path = |it: &Value| (it["replay"].clone(), it["status_transition"].clone());
        paths.push(replays.iter().map(path).collect::<Vec<_>>());
    }
    assert_eq!(paths[0], paths[1]);
    let count = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'windlass_replay_%' OR nspname = 'taken'";
    assert_eq!(Cluster::shared().psql(count).trim(), "0");
}
