//! Acts on many: a preview, then an operation that survives a crash and does each thing once.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use crate::{
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(
    jobs_are_cancelled_together,
    dead_letters_are_requeued_once_though_the_server_dies,
    an_operation_can_be_cancelled,
    what_cannot_be_meant_is_refused,
);

async fn enqueue(server: &Server, count: usize, job: &str) -> BTreeSet<String> {
    let body = format!("{{\"jobs\": [{}]}}", vec![job; count].join(","));
    let made = server.post("/api/v1/jobs/batch", &body).await.ok().json();
    let ids = made["results"].as_array().expect("there are results").iter();
    ids.map(|result| result["job_id"].as_str().expect("it was made").to_owned()).collect()
}

/// Waits until the operation is at its end, and gives back the document.
async fn ended(server: &Server, id: &str) -> Value {
    for _ in 0..600 {
        let operation = server.get(&format!("/api/v1/operations/{id}")).await.ok().json();
        if ["succeeded", "cancelled", "failed"].contains(&operation["state"].as_str().unwrap_or(""))
        {
            return operation;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("operation {id} does not end");
}

async fn jobs_are_cancelled_together(store: Store) {
    let server = Server::start(&store);
    let wanted = enqueue(&server, 30, r#"{"queue": "old", "tags": ["batch"]}"#).await;
    let others = enqueue(&server, 3, r#"{"queue": "new"}"#).await;
    let body =
        r#"{"act": "cancel", "filter": {"queue": "old"}, "reason": "too old", "per_second": 1000}"#;
    let preview = server.post("/api/v1/operations/preview", body).await.ok();
    assert_eq!((preview.at("/count"), preview.at("/at_least")), ("30".into(), "false".into()));
    assert_eq!(preview.json()["sample"].as_array().map(Vec::len), Some(10));
    let begun = server.post("/api/v1/operations", body).await;
    assert_eq!(begun.status, reqwest::StatusCode::CREATED);
    // What comes after it is not concerned.
    let later = enqueue(&server, 2, r#"{"queue": "old"}"#).await;
    let operation = ended(&server, &begun.at("/operation_id")).await;
    assert_eq!(operation["progress"], json!({"done": 30, "refused": 0, "cursor": null}));
    for id in &wanted {
        let events = server.get(&format!("/api/v1/jobs/{id}/events")).await.ok().json();
        let last = &events["items"][1];
        assert_eq!(last["to"], "cancelled");
        assert_eq!(last["actor"], "user:dev");
        assert_eq!(last["fact"]["reason"], "too old");
    }
    for id in others.iter().chain(&later) {
        assert_eq!(server.get(&format!("/api/v1/jobs/{id}")).await.ok().at("/state"), "queued");
    }
    let audit = server.get("/api/v1/audit?limit=1000").await.ok();
    assert_eq!(audit.text.matches("cancel_command").count(), 30);
    drop(server);
    store.check();
}

async fn dead_letters_are_requeued_once_though_the_server_dies(store: Store) {
    let server = Server::start(&store);
    let failed = enqueue(&server, 60, r#"{"queue": "q", "kind": "mail"}"#).await;
    for id in &failed {
        server.post(&format!("/api/v1/internal/jobs/{id}/run?force_fail=true"), "").await.ok();
    }
    let kept = enqueue(&server, 1, r#"{"queue": "other"}"#).await;
    let kept = kept.first().expect("there is one");
    server.post(&format!("/api/v1/internal/jobs/{kept}/run?force_fail=true"), "").await.ok();
    let body = r#"{"act": "requeue", "filter": {"queue": "q", "code": "FORCED_FAILURE"}, "per_second": 40}"#;
    let begun = server.post("/api/v1/operations", body).await.ok();
    tokio::time::sleep(Duration::from_millis(700)).await;
    server.kill();
    let server = Server::start(&store);
    let operation = ended(&server, &begun.at("/operation_id")).await;
    assert_eq!(operation["state"], "succeeded", "{operation}");
    let mut made = BTreeSet::new();
    for id in &failed {
        let letter = id.replace("job_", "dlq_");
        let letter = server.get(&format!("/api/v1/dlq/{letter}")).await.ok();
        assert_eq!(letter.at("/state"), "requeued");
        assert!(made.insert(letter.at("/requeued_as")), "two letters became one job");
    }
    let queued = server.get("/api/v1/jobs?queue=q&state=queued&limit=1000").await.ok().json();
    assert_eq!(queued["items"].as_array().map(Vec::len), Some(60), "each was requeued once");
    let other = server.get(&format!("/api/v1/dlq/{}", kept.replace("job_", "dlq_"))).await.ok();
    assert_eq!(other.at("/state"), "open");
    let groups = server.get("/api/v1/dlq/groups").await.ok();
    assert_eq!(groups.at("/items/0/count"), "1");
    drop(server);
    store.check();
}

async fn an_operation_can_be_cancelled(store: Store) {
    let server = Server::start(&store);
    let jobs = enqueue(&server, 50, r#"{"queue": "q"}"#).await;
    let body = r#"{"act": "cancel", "filter": {"queue": "q"}, "per_second": 20}"#;
    let id = server.post("/api/v1/operations", body).await.ok().at("/operation_id");
    tokio::time::sleep(Duration::from_millis(500)).await;
    server.post(&format!("/api/v1/jobs/{id}/cancel"), "").await.ok();
    assert_eq!(ended(&server, &id).await["state"], "cancelled");
    let left = server.get("/api/v1/jobs?queue=q&state=queued&limit=1000").await.ok().json();
    let left = left["items"].as_array().map_or(0, Vec::len);
    assert!(left > 0 && left < jobs.len(), "{left} of {} are left", jobs.len());
    let listed = server.get("/api/v1/operations").await.ok();
    assert_eq!(listed.at("/items/0/operation_id"), id);
}

async fn what_cannot_be_meant_is_refused(store: Store) {
    let server = Server::start(&store);
    for body in [
        r#"{"act": "destroy"}"#,
        r#"{"act": "cancel"}"#,
        r#"{"act": "requeue", "filter": {}}"#,
        r#"{"act": "cancel", "filter": {"queue": "q"}, "per_second": 0}"#,
        r#"{"act": "cancel", "filter": {"color": "red"}}"#,
        r#"{"act": "requeue", "filter": {"states": ["failed"]}}"#,
        r#"{"act": "cancel", "filter": {"states": ["gone"]}}"#,
    ] {
        let refused = server.post("/api/v1/operations", body).await;
        assert_eq!(refused.status, reqwest::StatusCode::UNPROCESSABLE_ENTITY, "{body}");
        assert_eq!(refused.at("/code"), "INVALID_INPUT", "{body}");
    }
    // Nobody else makes or takes what is the server's own.
    let refused = server.post("/api/v1/jobs", r#"{"kind": "windlass.operation"}"#).await;
    assert_eq!(refused.at("/code"), "INVALID_INPUT");
    let claim = r#"{"worker_id": "w", "queues": ["windlass.operations"]}"#;
    assert_eq!(server.post("/api/v1/claims", claim).await.at("/code"), "INVALID_INPUT");
}
