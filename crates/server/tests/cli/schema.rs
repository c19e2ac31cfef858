//! What commands print with `-o json` is what the document of the API promises.
//!
//! `READS` is the table: a command that reads, and the route whose answer it prints. A new command that reads belongs
//! there.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    hand::{bury, take},
    serving::Server,
    shell::Shell,
};

/// A command, and the route whose answer it prints. JOB, LETTER, OPERATION and WAITING are filled in.
const READS: &[(&str, &str)] = &[
    ("job list", "/api/v1/jobs"),
    ("job list --state succeeded --kind mail", "/api/v1/jobs"),
    ("job show JOB", "/api/v1/jobs/{id}"),
    ("job show WAITING", "/api/v1/jobs/{id}"),
    ("job watch JOB", "/api/v1/jobs/{id}"),
    ("job events JOB", "/api/v1/jobs/{id}/events"),
    ("job verify JOB", "/api/v1/jobs/{id}/verify"),
    ("job steps JOB", "/api/v1/jobs/{id}/steps"),
    ("job why WAITING", "/api/v1/jobs/{id}/why"),
    ("dlq list", "/api/v1/dlq"),
    ("dlq list --state open", "/api/v1/dlq"),
    ("dlq groups", "/api/v1/dlq/groups"),
    ("dlq show LETTER", "/api/v1/dlq/{id}"),
    ("token list", "/api/v1/tokens"),
    ("queue list", "/api/v1/queues"),
    ("queue rules", "/api/v1/rules"),
    ("queue show nobody", "/api/v1/queues/{name}"),
    ("schedule list", "/api/v1/schedules"),
    ("schedule show nightly", "/api/v1/schedules/{name}"),
    ("schedule preview nightly", "/api/v1/schedules/{name}/preview"),
    ("schedule history nightly", "/api/v1/schedules/{name}/history"),
    ("top --once", "/api/v1/overview"),
];

/// A command that acts, and the route whose answer it prints.
const ACTS: &[(&str, &str, &str)] = &[
    ("job add mail null", "post", "/api/v1/jobs"),
    ("job signal WAITING paid 7", "post", "/api/v1/jobs/{id}/signals"),
    ("job cancel WAITING", "post", "/api/v1/jobs/{id}/cancel"),
    ("job retry WAITING", "post", "/api/v1/jobs/{id}/retry"),
    ("job cancel --kind nothing", "post", "/api/v1/operations/preview"),
    ("job cancel --kind mail --dry-run", "post", "/api/v1/operations/preview"),
    ("job cancel --kind mail --yes", "post", "/api/v1/operations"),
    ("dlq discard LETTER --reason old", "post", "/api/v1/dlq/{id}/discard"),
    ("dlq approve LETTER --as bob --yes", "post", "/api/v1/dlq/{id}/discard/approve"),
    ("dlq requeue OTHER", "post", "/api/v1/dlq/{id}/requeue"),
    ("token add bob", "post", "/api/v1/tokens"),
    ("queue pause nobody --yes", "post", "/api/v1/queues/{name}/pause"),
    ("schedule pause nightly", "post", "/api/v1/schedules/{name}/pause"),
    ("schedule trigger nightly", "post", "/api/v1/schedules/{name}/trigger"),
];

#[test]
fn documents_are_as_the_api_promises() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let api: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let shell = Shell::new();
    let empty = Server::start(shell.folder(), "");
    for (command, route) in READS.iter().filter(|(command, _)| !is_about_one(command)) {
        check(&api, &shell, command, "get", route);
    }
    let names = fill(&empty);
    let named = |command: &str| {
        names.iter().fold(command.to_owned(), |text, (name, id)| text.replace(name, id))
    };
    for (command, route) in READS {
        check(&api, &shell, &named(command), "get", route);
    }
    for (command, method, route) in ACTS {
        check(&api, &shell, &named(command), method, route);
    }
}

/// Does the command name something that has to be there?
fn is_about_one(command: &str) -> bool {
    command.contains(char::is_uppercase)
        || ["nobody", "nightly"].iter().any(|it| command.contains(it))
}

/// Makes jobs in several states, with all that they can have. It gives back what they are called in the tables.
fn fill(server: &Server) -> Vec<(&'static str, String)> {
    let job = server.enqueue(&json!({
        "kind": "mail", "payload": {"n": 1.5}, "tags": ["a", "b"], "idempotency_key": "k1",
        "task_id": "t1", "limit_key": "l1", "unique_key": "u1", "timeout_ms": 60_000,
        "retry": {"base_ms": 1, "max_backoff_ms": 1}, "deadline_at": "2126-01-02T03:04:05Z",
    }));
    take(server, "default").fail(server, "SMTP_BUSY", "try later", true);
    take(server, "default").succeed(server, &json!({"sent": true}));
    let letter = bury(server, &json!({"kind": "mail"}), "BAD_ADDRESS", "no such mailbox");
    let other = bury(server, &json!({"kind": "mail"}), "BAD_ADDRESS", "no such mailbox");
    let waiting = server.enqueue(&json!({"kind": "mail", "queue": "nobody"}));
    let schedule = json!({
        "name": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "job": {"kind": "report"},
    });
    let (status, answer) = server.call("POST", "/api/v1/schedules", Some(&schedule));
    assert_eq!(status, 201, "{answer}");
    let concurrency = json!({"concurrency": {"max": 3, "each": "together"}});
    for (name, says) in [("few", concurrency), ("night", json!("pause"))] {
        let rule = json!({"scope": {"queue": "nobody"}, "says": says, "reason": "it is quiet"});
        let (status, answer) = server.call("PUT", &format!("/api/v1/rules/{name}"), Some(&rule));
        assert_eq!(status, 200, "{answer}");
    }
    vec![("JOB", job), ("LETTER", letter), ("OTHER", other), ("WAITING", waiting)]
}

/// Runs the command, and compares what it prints with the schema of the route's good answers.
fn check(api: &Value, shell: &Shell, command: &str, method: &str, route: &str) {
    let ran = shell.quiet(&format!("windlass {command} -o json"));
    assert_eq!(ran.code, 0, "windlass {command}: {}", ran.stderr);
    let answers = api["paths"][route][method]["responses"].as_object();
    let answers = answers.unwrap_or_else(|| panic!("there is no {method} {route}"));
    let good = answers.iter().find(|(status, _)| status.starts_with('2'));
    let (_, good) = good.unwrap_or_else(|| panic!("{method} {route} has no good answer"));
    let schema = &good["content"]["application/json"]["schema"];
    assert!(!schema.is_null(), "{method} {route} has no schema");
    let mut wrong = Vec::new();
    compare(api, schema, &ran.json(), "", &mut wrong);
    assert!(wrong.is_empty(), "windlass {command}, {method} {route}:\n{}", wrong.join("\n"));
}

/// Compares a document with a schema. A word of schemas that it does not know is a failure, never a pass.
fn compare(api: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let Some(words) = schema.as_object() else {
        assert_eq!(*schema, json!(true), "{at}: a schema is an object, or true");
        return;
    };
    for (word, said) in words {
        let fits = |schema: &Value| {
            let mut inner = Vec::new();
            compare(api, schema, value, at, &mut inner);
            inner.is_empty()
        };
        let is_fine = match word.as_str() {
            "description" | "title" | "default" | "format" => true,
            "$ref" => {
                let pointer = said.as_str().and_then(|it| it.strip_prefix('#')).expect("a place");
                let target = api.pointer(pointer).unwrap_or_else(|| panic!("{pointer} is nowhere"));
                compare(api, target, value, at, wrong);
                true
            }
            "type" => match said {
                Value::Array(types) => types.iter().any(|name| is_a(name, value)),
                name => is_a(name, value),
            },
            "const" => said == value,
            "enum" => said.as_array().expect("a list").contains(value),
            "anyOf" | "oneOf" => said.as_array().expect("a list").iter().any(fits),
            "minimum" => value.as_f64().is_none_or(|it| it >= said.as_f64().expect("a number")),
            "maximum" => value.as_f64().is_none_or(|it| it <= said.as_f64().expect("a number")),
            "required" => {
                let names = said.as_array().expect("a list").iter();
                let missing: Vec<&Value> = names
                    .filter(|name| {
                        value.is_object() && value.get(name.as_str().expect("a name")).is_none()
                    })
                    .collect();
                missing.is_empty()
            }
            "items" => {
                for (number, item) in value.as_array().into_iter().flatten().enumerate() {
                    compare(api, said, item, &format!("{at}/{number}"), wrong);
                }
                true
            }
            "properties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    match said.get(name) {
                        Some(schema) => {
                            compare(api, schema, member, &format!("{at}/{name}"), wrong);
                        }
                        // Nothing is printed that is not written down.
                        None => wrong.push(format!("{at}/{name} is not in the schema")),
                    }
                }
                true
            }
            "additionalProperties" => true,
            other => panic!("{at}: this test does not know {other:?}"),
        };
        if !is_fine {
            wrong.push(format!("{at}: {word} {said} does not allow {value}"));
        }
    }
}

fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str().expect("a name") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("this test does not know the type {other}"),
    }
}

#[test]
fn what_is_not_as_promised_is_found() {
    let api = json!({"components": {"schemas": {"A": {
        "type": "object", "required": ["id"],
        "properties": {"id": {"type": "string"}, "n": {"type": ["integer", "null"], "minimum": 0}},
    }}}});
    let schema = json!({"type": "array", "items": {"$ref": "#/components/schemas/A"}});
    let wrong = |value: Value| {
        let mut wrong = Vec::new();
        compare(&api, &schema, &value, "", &mut wrong);
        wrong.len()
    };
    assert_eq!(wrong(json!([{"id": "a", "n": null}])), 0);
    assert_eq!(wrong(json!([{"n": 1}, {"id": 7}, {"id": "a", "n": -1}, {"id": "a", "x": 1}])), 4);
}
