//! The commands of `docs/guide/workers.md` do what the page says.

use std::{fs, path::Path, process::Command};

use serde_json::Value;

use crate::{
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(the_guide_for_workers_is_true);

async fn the_guide_for_workers_is_true(store: Store) {
    let server = Server::start(&store);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/workers.md");
    let page = fs::read_to_string(path).expect("the page is there");
    let (mut lease, mut answer, mut compared) = (Value::Null, Value::Null, 0);
    for (language, text) in blocks(&page) {
        match language {
            "sh" => {
                answer = run(&server, &lease, text);
                if !answer["leases"].is_null() {
                    lease = answer["leases"][0].clone();
                }
            }
            "json" => {
                let expected = serde_json::from_str(text).expect("the page has JSON");
                compare(&expected, &answer);
                compared += 1;
            }
            _ => {}
        }
    }
    assert!(compared > 6, "only {compared} answers were compared");
}

/// The blocks of code of a page, with their languages.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let parts = page.split("```").skip(1).step_by(2);
    parts.map(|part| part.split_once('\n').expect("a block has lines")).collect()
}

/// Runs the commands, and gives the answer of the last one.
fn run(server: &Server, lease: &Value, commands: &str) -> Value {
    let mut shell = Command::new("sh");
    shell.args(["-eu", "-c", commands]).env("URL", server.url(""));
    shell.env("JOB", lease["job"]["job_id"].as_str().unwrap_or_default());
    shell.env("EPOCH", lease["epoch"].to_string());
    let output = shell.output().expect("a shell can be run");
    assert!(output.status.success(), "{commands}: {}", String::from_utf8_lossy(&output.stderr));
    let answers = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    let last = answers.map(|answer| answer.expect("it answers with JSON")).last();
    last.unwrap_or_else(|| panic!("{commands} answers nothing"))
}

/// The answer has all that the page shows. `…` stands for anything.
fn compare(expected: &Value, found: &Value) {
    match (expected, found) {
        (Value::String(any), found) if any == "…" => assert!(!found.is_null()),
        (Value::Object(expected), Value::Object(found)) => {
            for (name, expected) in expected {
                compare(
                    expected,
                    found.get(name).unwrap_or_else(|| panic!("no {name}: {found:?}")),
                );
            }
        }
        (Value::Array(expected), Value::Array(found)) => {
            assert_eq!(expected.len(), found.len(), "{found:?}");
            expected.iter().zip(found).for_each(|(expected, found)| compare(expected, found));
        }
        _ => assert_eq!(expected, found),
    }
}
