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
    what_a_retry_took_over_is_not_requeued,
    an_operation_can_be_cancelled,
    an_operation_that_gets_on_is_not_given_up,
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

/// One person retries jobs that failed, another one requeues their dead letters: the work is done again once.
async fn what_a_retry_took_over_is_not_requeued(store: Store) {
    let server = Server::start(&store);
    let failed = enqueue(&server, 10, r#"{"queue": "q", "kind": "mail"}"#).await;
    for id in &failed {
        server.post(&format!("/api/v1/internal/jobs/{id}/run?force_fail=true"), "").await.ok();
    }
    let act = async |act: &str| {
        let filter = json!({"queue": "q", "code": "FORCED_FAILURE"});
        let body = json!({"act": act, "filter": filter, "per_second": 1_000}).to_string();
        let begun = server.post("/api/v1/operations", &body).await.ok();
        ended(&server, &begun.at("/operation_id")).await["progress"].clone()
    };
    assert_eq!(act("retry").await, json!({"done": 10, "refused": 0, "cursor": null}));
    assert_eq!(act("requeue").await, json!({"done": 0, "refused": 0, "cursor": null}));
    // Those that took over come to their end, and still nothing is left to requeue or to retry.
    for id in &failed {
        let letter = server.get(&format!("/api/v1/dlq/{}", id.replace("job_", "dlq_"))).await.ok();
        assert_eq!(letter.at("/state"), "requeued");
        let heir = letter.at("/requeued_as");
        let run = format!("/api/v1/internal/jobs/{heir}/run");
        server.post(&run, "").await.ok();
        let heir = server.get(&format!("/api/v1/jobs/{heir}")).await.ok();
        assert_eq!((heir.at("/state"), heir.at("/rerun_of")), ("succeeded".into(), id.clone()));
        assert_eq!(heir.at("/requeued_from_dlq_id"), letter.at("/dlq_id"));
        for path in [
            format!("/api/v1/dlq/{}/requeue", letter.at("/dlq_id")),
            format!("/api/v1/jobs/{id}/retry"),
        ] {
            let again = server.post(&path, "").await;
            assert_eq!(
                (again.status.as_u16(), again.at("/code").as_str()),
                (409, "DLQ_REQUEUE_CONFLICT")
            );
        }
    }
    assert_eq!(act("requeue").await, json!({"done": 0, "refused": 0, "cursor": null}));
    assert_eq!(act("retry").await, json!({"done": 0, "refused": 10, "cursor": null}));
    let all = server.get("/api/v1/jobs?queue=q&limit=1000").await.ok().json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(20), "each has one that took over");
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

/// The server is killed more often than a job may be interrupted, each time after the operation has come a little further.
async fn an_operation_that_gets_on_is_not_given_up(store: Store) {
    const KILLS: u32 = 7;
    let mut server = Server::start(&store);
    let jobs = enqueue(&server, 400, r#"{"queue": "old"}"#).await;
    let body = r#"{"act": "cancel", "filter": {"queue": "old"}, "per_second": 20}"#;
    let id = server.post("/api/v1/operations", body).await.ok().at("/operation_id");
    let done = async |server: &Server| {
        let operation = server.get(&format!("/api/v1/operations/{id}")).await.ok().json();
        operation["progress"]["done"].as_u64().unwrap_or(0)
    };
    let mut before = 0;
    for _ in 0..KILLS {
        let mut now = before;
        for _ in 0..600 {
            now = done(&server).await;
            if now > before {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let state = server.get(&format!("/api/v1/operations/{id}")).await.ok().at("/state");
        assert!(now > before, "it does not get on: {state}, {now} done");
        before = now;
        server.kill();
        server = Server::start(&store);
    }
    // What is left is done faster by cancelling it and asking again: that it goes on is what counts.
    let operation = server.get(&format!("/api/v1/operations/{id}")).await.ok().json();
    assert_ne!(operation["state"], "failed", "{operation}");
    let events = server.get(&format!("/api/v1/jobs/{id}/events?limit=1000")).await.ok().json();
    let events = events["items"].as_array().expect("a list");
    let count = |cause: &str| events.iter().filter(|event| event["cause"] == cause).count();
    assert!(count("process_restart") >= 6, "it was interrupted: {events:?}");
    server.post(&format!("/api/v1/jobs/{id}/cancel"), "").await.ok();
    let ended = ended(&server, &id).await;
    assert_eq!(ended["state"], "cancelled");
    assert!(server.stop().success());
    drop(jobs);
    store.check();
}
