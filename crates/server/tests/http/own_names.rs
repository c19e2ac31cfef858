//! Names that begin with `windlass.` are the server's own: no caller makes a job, a schedule or a rule of such a name.
//!
//! The bodies are tried on every route that takes one, with every role. A route that is forgotten here is tried all
//! the same.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    no_route_makes_a_job_of_the_servers_own,
    no_caller_uses_the_scopes_of_the_server,
    the_payload_of_an_operation_cannot_be_changed,
);

const ROLES: [&str; 4] = ["viewer", "worker", "operator", "admin"];

async fn call(
    http: &reqwest::Client,
    server: &Server,
    (method, path): (&Method, &str),
    token: &str,
    body: &Value,
) -> Answer {
    let request = http.request(method.clone(), server.url(path)).bearer_auth(token);
    let request = request.header("content-type", "application/json").body(body.to_string());
    send(request.timeout(Duration::from_secs(20))).await.expect("it answers")
}

/// All that a body for one of the routes can look like, with this kind and this queue.
fn bodies(kind: &str, queue: &str) -> Vec<Value> {
    let job = json!({ "kind": kind, "queue": queue, "payload": {} });
    let run = json!({ "task_id": "t", "idempotency_key": "k", "kind": kind, "queue": queue });
    let mut own_key = job.clone();
    own_key["idempotency_key"] = json!("orders:1");
    let rule = json!({ "scope": { "queue": queue }, "says": "pause" });
    vec![
        job.clone(),
        own_key,
        run,
        json!({ "jobs": [job.clone()] }),
        json!({ "name": "nightly", "cron": "@daily", "job": job.clone() }),
        json!({ "name": "windlass.nightly", "cron": "@daily", "job": {} }),
        json!({ "payload": {}, "kind": kind, "queue": queue, "schedule_type": "at" }),
        json!({ "worker_id": "w", "queues": [queue], "kinds": [kind] }),
        rule,
    ]
}

async fn no_route_makes_a_job_of_the_servers_own(store: Store) {
    let tokens = ROLES.map(|role| store.token(role, role, "acme"));
    let (server, http) = (Server::start_guarded(&store), client());
    let document = server.get("/openapi.json").await.json();
    let names = [
        ("windlass.webhook", "windlass.webhooks"),
        ("windlass.operation", "default"),
        ("mail", "windlass.operations"),
    ];
    for (path, operations) in document["paths"].as_object().expect("there are paths") {
        for method in [Method::POST, Method::PUT] {
            if operations.get(method.as_str().to_lowercase()).is_none() {
                continue;
            }
            let path = path.replace("{id}", "nobody").replace("{name}", "windlass.mine");
            for token in &tokens {
                for (kind, queue) in names {
                    for body in bodies(kind, queue) {
                        let answer = call(&http, &server, (&method, &path), token, &body).await;
                        check(&format!("{method} {path} {body}"), &answer);
                    }
                }
            }
        }
    }
    let admin = &tokens[3];
    for list in ["jobs", "schedules"] {
        let path = format!("/api/v1/{list}");
        let found = call(&http, &server, (&Method::GET, &path), admin, &Value::Null).await.ok();
        assert!(!found.text.contains("windlass."), "{}", found.text);
    }
}

/// Nothing was made of it: what is made by it is a job of another name, or a rule about a queue.
fn check(asked: &str, answer: &Answer) {
    assert!(answer.status.as_u16() < 500, "{asked}: {}", answer.text);
    let json: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    let is_own = |value: &Value| value.as_str().is_some_and(|name| name.starts_with("windlass."));
    let jobs = [&json["job"], &json, &json["schedule"], &json["results"][0]["job"]];
    let is_refused = !answer.status.is_success() || json["results"][0]["ok"] == false;
    if is_refused {
        return;
    }
    for job in jobs {
        assert!(!is_own(&job["kind"]) && !is_own(&job["name"]), "{asked}: {}", answer.text);
    }
    assert_eq!(json["results"], Value::Null, "{asked}: {}", answer.text);
    let is_made = answer.status == StatusCode::CREATED && json.get("operation_id").is_none();
    assert!(!is_made || !asked.contains("windlass."), "{asked}: {}", answer.text);
}

async fn no_caller_uses_the_scopes_of_the_server(store: Store) {
    let server = Server::start(&store);
    for scope in ["_windlass", "_job", "windlass.webhooks"] {
        let body = json!({ "idempotency_scope": scope, "idempotency_key": "orders:1" });
        let answer = server.post("/api/v1/jobs", &body.to_string()).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", answer.text);
        assert!(answer.text.contains("idempotency_scope"), "{}", answer.text);
    }
    let body = json!({ "idempotency_scope": "webhooks", "idempotency_key": "orders:1" });
    server.post("/api/v1/jobs", &body.to_string()).await.ok();
}

/// An operation that was cancelled can be run again as it was, but nobody says what it does.
async fn the_payload_of_an_operation_cannot_be_changed(store: Store) {
    let server = Server::start(&store);
    server.post("/api/v1/jobs", r#"{"queue": "old"}"#).await.ok();
    server.post("/api/v1/queues/windlass.operations/pause", "{}").await.ok();
    let body = r#"{"act": "cancel", "filter": {"queue": "old"}}"#;
    let id = server.post("/api/v1/operations", body).await.ok().at("/operation_id");
    server.post(&format!("/api/v1/jobs/{id}/cancel"), "{}").await.ok();
    let again = server.post(&format!("/api/v1/jobs/{id}/retry"), "{}").await.ok();
    assert_eq!(again.at("/kind"), "windlass.operation", "{}", again.text);
}
