//! What others wrote cannot speak to the terminal, and no password is printed.
//!
//! Text that would move a cursor, set a title or turn the order of reading is put into every field that a caller can set,
//! and every command that shows something of it is looked at.

use std::fs;

use serde_json::{Value, json};

use crate::{hand::take, serving::Server, shell::Shell};

/// An escape that sets the title, colours, a link, a bell, C1, marks of direction, and lines of one's own.
const ODD: &str =
    "\u{1b}]0;PWNED\u{7}\u{1b}[31mRED\u{9b}2J\u{202e}evil\u{2066}\u{2028}\rline\u{200f}";

/// Nothing in it reaches a terminal, but for colours of our own.
fn check(command: &str, text: &str) {
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        let after = &rest[at + 1..];
        let end = after.find(|each: char| !matches!(each, '[' | ';' | '0'..='9'));
        let is_colour = end.is_some_and(|end| after[end..].starts_with('m'));
        assert!(after.starts_with('[') && is_colour, "{command}: {text:?}");
        let known = ["[0m", "[1m", "[2m", "[31m", "[32m", "[33m", "[34m", "[35m", "[36m"];
        assert!(known.iter().any(|it| after.starts_with(it)), "{command}: {text:?}");
        assert!(!after.starts_with("[31mRED"), "{command}: the colours are not ours: {text:?}");
        rest = after;
    }
    let is_odd = |each: char| {
        (each.is_control() && !matches!(each, '\n' | '\t' | '\u{1b}'))
            || matches!(each, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.chars().any(is_odd), "{command}: {text:?}");
}

#[test]
fn what_others_wrote_cannot_speak_to_the_terminal() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let post = |path: &str, body: Value| {
        let (status, answer) = server.call("POST", &format!("/api/v1/{path}"), Some(&body));
        assert!(status < 300, "{path}: {status} {answer}");
        answer
    };
    let buried = json!({ "queue": "mail", "payload": { ODD: ODD }, "max_retries": 0 });
    let job = server.enqueue(&buried);
    let held = take(&server, "mail");
    let lease = json!({ "job_id": job, "epoch": held.epoch, "progress": ODD });
    post("leases/renew", json!({ "leases": [lease] }));
    held.fail(&server, "EVIL\u{202e}CODE\u{2066}", ODD, false);
    let letter = job.replacen("job_", "dlq_", 1);
    post(&format!("dlq/{letter}/discard"), json!({ "reason": ODD }));
    let waits = server.enqueue(&json!({ "queue": "held", "payload": ODD }));
    post("queues/held/pause", json!({ "reason": ODD }));
    let gone = server.enqueue(&json!({ "queue": "gone" }));
    post(&format!("jobs/{gone}/cancel"), json!({ "reason": ODD }));
    let made = json!({ "queue": "held", "payload": ODD });
    post("schedules", json!({ "name": "nightly", "cron": "@daily", "job": made }));
    post("schedules/nightly/pause", json!({ "reason": ODD }));
    post("schedules/nightly/trigger", json!({}));
    let many = json!({ "act": "cancel", "filter": { "queue": "none" }, "reason": ODD });
    post("operations", many);
    let commands = [
        format!("job show {job}"),
        format!("job show {waits}"),
        format!("job show {gone}"),
        format!("job show {job} --full"),
        format!("job why {waits}"),
        format!("job events {job}"),
        format!("job events {gone}"),
        format!("job watch {job}"),
        "job list".to_owned(),
        format!("dlq show {letter}"),
        "dlq list".to_owned(),
        "dlq groups".to_owned(),
        "queue list".to_owned(),
        "queue show held".to_owned(),
        "queue rules".to_owned(),
        "schedule list".to_owned(),
        "schedule show nightly".to_owned(),
        "schedule history nightly".to_owned(),
        "worker list".to_owned(),
        "token list".to_owned(),
        "top --once".to_owned(),
        "doctor".to_owned(),
        format!("job retry {waits}"),
    ];
    for command in &commands {
        for more in ["--color always", "--color never", "-o json", "-o jsonl"] {
            let line = format!("windlass {command} {more} --server http://{}", server.address());
            let ran = shell.quiet(&line);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains("unrecognized subcommand"), "{line}: {said}");
            check(&line, &said);
            if more == "-o json" && ran.code == 0 && !command.starts_with("job watch") {
                let read: Result<Value, _> = serde_json::from_str(&ran.stdout);
                assert!(read.is_ok(), "{line}: {}", ran.stdout);
            }
        }
    }
}

/// The password of a database is in the environment of every command, and in none of its words.
#[test]
fn a_password_is_never_printed() {
    let shell = Shell::new();
    let addresses = [
        "postgres://ann:S3CRET@127.0.0.1:1/shop",
        "postgres://127.0.0.1:1/shop?user=ann&password=S3CRET",
        "postgre://ann:S3CRET@127.0.0.1:1/shop",
        "postgres://ann:S3CRET@127.0.0.1:1/shop?colour=red",
        "ann:S3CRET@127.0.0.1/shop",
        "mysql://127.0.0.1/x?password=S3CRET",
    ];
    let commands = [
        "--help",
        "help",
        "serve",
        "serve --help",
        "dev --help",
        "dev",
        "job list",
        "job list --help",
        "job add --help",
        "worker list",
        "token list",
        "token add ann --role admin",
        "queue list",
        "schedule list",
        "dlq list",
        "top --once",
        "doctor",
        "doctor --deep",
        "migrate plan",
        "migrate status",
        "config show",
        "config check",
        "backup copy.db",
        "restore copy.db",
        "replay RP-001",
        "bench --seconds 1",
        "man pages",
        "completions bash",
    ];
    for address in addresses {
        for command in commands {
            let line = format!("WINDLASS_STORE='{address}' timeout 20 windlass {command}");
            let ran = shell.quiet(&line);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains("S3CRET"), "windlass {command} with {address}: {said}");
        }
        let file = format!("[server]\nstore = \"{address}\"\n");
        fs::write(shell.folder().join("windlass.toml"), file).expect("it can be written");
        for command in [
            "config show --config windlass.toml",
            "serve --config windlass.toml",
            "doctor --config windlass.toml",
        ] {
            let ran = shell.quiet(&format!("timeout 20 windlass {command}"));
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains("S3CRET"), "windlass {command} with {address}: {said}");
        }
        fs::remove_file(shell.folder().join("windlass.toml")).expect("it was written");
    }
}
