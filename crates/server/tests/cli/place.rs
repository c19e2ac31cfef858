//! Which Windlass a command acts on: every command that can reach a server, with every pair of flags and variables.
//!
//! Nothing answers at the places that are named here, so what a command says about one of them shows where it went.

use std::{collections::BTreeSet, fs};

use serde_json::json;

use crate::{serving::Server, shell::Shell};

/// Every command with a `--server`, and how it is typed so that it gets as far as looking for its place.
const COMMANDS: &[(&str, &str)] = &[
    ("demo", "demo"),
    ("dlq-approve", "dlq approve dlq_01kz000000000000000000000a --yes"),
    ("dlq-discard", "dlq discard dlq_01kz000000000000000000000a --reason x --yes"),
    ("dlq-groups", "dlq groups"),
    ("dlq-list", "dlq list"),
    ("dlq-requeue", "dlq requeue --code X --yes"),
    ("dlq-show", "dlq show dlq_01kz000000000000000000000a"),
    ("doctor", "doctor"),
    ("job-add", "job add x"),
    ("job-cancel", "job cancel --kind x --yes"),
    ("job-events", "job events job_01kz000000000000000000000a"),
    ("job-list", "job list"),
    ("job-resume", "job resume job_01kz000000000000000000000a --reason x"),
    ("job-retry", "job retry --kind x --yes"),
    ("job-show", "job show job_01kz000000000000000000000a"),
    ("job-signal", "job signal job_01kz000000000000000000000a paid"),
    ("job-steps", "job steps job_01kz000000000000000000000a"),
    ("job-verify", "job verify job_01kz000000000000000000000a"),
    ("job-watch", "job watch job_01kz000000000000000000000a"),
    ("job-why", "job why job_01kz000000000000000000000a"),
    ("queue-drain", "queue drain x"),
    ("queue-limit", "queue limit x --concurrency 1"),
    ("queue-list", "queue list"),
    ("queue-pause", "queue pause x"),
    ("queue-resume", "queue resume x"),
    ("queue-rules", "queue rules"),
    ("queue-show", "queue show x"),
    ("schedule-add", "schedule add x y --every 1h"),
    ("schedule-backfill", "schedule backfill x --from -2h --to -1h --yes"),
    ("schedule-delete", "schedule delete x --yes"),
    ("schedule-history", "schedule history x"),
    ("schedule-list", "schedule list"),
    ("schedule-pause", "schedule pause x"),
    ("schedule-preview", "schedule preview x"),
    ("schedule-resume", "schedule resume x"),
    ("schedule-show", "schedule show x"),
    ("schedule-trigger", "schedule trigger x"),
    ("token-add", "token add ann"),
    ("token-list", "token list"),
    ("token-revoke", "token revoke tok_01kz000000000000000000000a --yes"),
    ("top", "top --once"),
    ("worker", "worker --config worker.toml"),
];

/// What a command says of the places that are named here.
const SERVER: &str = "127.0.0.1:1";
const OTHER_SERVER: &str = "127.0.0.1:2";
const STORE: &str = "missing/flag.db";
const OTHER_STORE: &str = "missing/variable.db";

/// Variables, flags, and where the calls go.
const PAIRS: &[(&str, &str, &str)] = &[
    ("", "--server http://127.0.0.1:1", SERVER),
    ("", "--store sqlite:missing/flag.db", STORE),
    ("WINDLASS_SERVER=http://127.0.0.1:2", "--store sqlite:missing/flag.db", STORE),
    ("WINDLASS_STORE=sqlite:missing/variable.db", "--server http://127.0.0.1:1", SERVER),
    ("WINDLASS_SERVER=http://127.0.0.1:2", "--server http://127.0.0.1:1", SERVER),
    ("WINDLASS_STORE=sqlite:missing/variable.db", "--store sqlite:missing/flag.db", STORE),
    ("WINDLASS_SERVER=http://127.0.0.1:2", "", OTHER_SERVER),
    ("WINDLASS_STORE=sqlite:missing/variable.db", "", OTHER_STORE),
    (
        "WINDLASS_SERVER=http://127.0.0.1:2 WINDLASS_STORE=sqlite:missing/variable.db",
        "",
        OTHER_SERVER,
    ),
    ("WINDLASS_SERVER= WINDLASS_STORE=sqlite:missing/variable.db", "", OTHER_STORE),
];

fn shell() -> Shell {
    let shell = Shell::new();
    let config = "[executors.http]\nenabled = true\n";
    fs::write(shell.folder().join("worker.toml"), config).expect("it can be written");
    shell
}

/// Runs each with a shell of its own, two at a time.
fn each(check: impl Fn(&Shell, &str, &str) + Sync) {
    let (left, right) = COMMANDS.split_at(COMMANDS.len() / 2);
    std::thread::scope(|scope| {
        for half in [left, right] {
            let check = &check;
            scope.spawn(move || {
                let shell = shell();
                half.iter().for_each(|(name, typed)| check(&shell, name, typed));
            });
        }
    });
}

#[test]
fn the_table_has_every_command_with_a_server() {
    let shell = shell();
    assert_eq!(shell.quiet("windlass man pages").code, 0);
    let pages = fs::read_dir(shell.folder().join("pages")).expect("the pages are there");
    let mut found = BTreeSet::new();
    for page in pages.map(|page| page.expect("a page").path()) {
        let text = fs::read_to_string(&page).expect("it is text");
        let name = page.file_stem().and_then(|name| name.to_str()).expect("it has a name");
        if text.contains("\n\\fB\\-\\-server\\fR") {
            found.insert(name.trim_start_matches("windlass-").to_owned());
        }
    }
    let known: BTreeSet<String> = COMMANDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, known);
}

#[test]
fn a_flag_stands_above_a_variable_in_every_command() {
    each(|shell, name, typed| {
        for (variables, flags, place) in PAIRS {
            let ran = shell.quiet(&format!("{variables} windlass {typed} {flags}"));
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert_ne!(ran.code, 0, "{name}: {variables} {flags}: {said}");
            for each in [SERVER, OTHER_SERVER, STORE, OTHER_STORE] {
                let expected = each == *place;
                assert_eq!(said.contains(each), expected, "{name}: {variables} {flags}: {said}");
            }
        }
    });
}

#[test]
fn two_flags_that_contradict_each_other_are_refused_by_every_command() {
    each(|shell, name, typed| {
        let flags = "--server http://127.0.0.1:1 --store sqlite:missing/flag.db";
        let ran = shell.quiet(&format!("windlass {typed} {flags}"));
        assert_eq!(ran.code, 2, "{name}: {}", ran.stderr);
        let expected = "--server and --store name two places";
        assert!(ran.stderr.contains(expected), "{name}: {}", ran.stderr);
    });
}

/// What the flag names is changed, and what the variable names is not.
#[test]
fn a_cancel_goes_to_the_store_that_the_flag_names() {
    let (shell, other) = (shell(), Shell::new());
    let server = Server::start(other.folder(), "");
    let job = server.enqueue(&json!({"kind": "mail"}));
    assert_eq!(shell.quiet("windlass token list --store sqlite:test.db").code, 0);
    let here = "--store sqlite:test.db";
    let made = shell.quiet(&format!("windlass job add mail {here} -o json")).json();
    let variable = format!("WINDLASS_SERVER=http://{}", server.address());
    let ran = shell.quiet(&format!("{variable} windlass job cancel --kind mail {here} --yes"));
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_eq!(server.get(&format!("/api/v1/jobs/{job}"))["state"], "queued");
    let id = made["job"]["job_id"].as_str().expect("it has an id");
    let shown = shell.quiet(&format!("windlass job show {id} {here} -o json")).json();
    assert_eq!(shown["state"], "cancelled", "{shown}");
}

#[test]
fn a_deep_look_is_at_a_store() {
    let shell = shell();
    assert_eq!(shell.quiet("windlass token list").code, 0);
    for line in [
        "windlass doctor --deep --server http://127.0.0.1:1",
        "WINDLASS_SERVER=http://127.0.0.1:1 windlass doctor --deep",
    ] {
        let ran = shell.quiet(line);
        assert_eq!(ran.code, 2, "{line}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains("windlass doctor --deep --store"), "{}", ran.stderr);
    }
    let line = "WINDLASS_SERVER=http://127.0.0.1:1 windlass doctor --deep --store sqlite:windlass.db -o json";
    let ran = shell.quiet(line);
    assert_eq!((ran.code, &ran.json()["violations"]), (0, &json!([])), "{}", ran.stderr);
}

/// A config file stands below flags and variables, and above the default.
#[test]
fn the_store_of_a_config_file_is_below_flags_and_variables() {
    let shell = shell();
    let config = "[server]\nstore = \"sqlite:missing/file.db\"\n[executors.http]\nenabled = true\n";
    fs::write(shell.folder().join("w.toml"), config).expect("it can be written");
    for command in ["doctor", "worker"] {
        for (variables, flags, place) in [
            ("", "", "missing/file.db"),
            ("", "--store sqlite:missing/flag.db", STORE),
            ("", "--server http://127.0.0.1:1", SERVER),
            ("WINDLASS_STORE=sqlite:missing/variable.db", "", OTHER_STORE),
            ("WINDLASS_SERVER=http://127.0.0.1:2", "", OTHER_SERVER),
        ] {
            let ran =
                shell.quiet(&format!("{variables} windlass {command} --config w.toml {flags}"));
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(said.contains(place), "{command} {variables} {flags}: {said}");
        }
    }
}
