//! Jobs over HTTP: how they are made, looked at and acted on, answer by answer.

use reqwest::Method;

use crate::{
    client::Answer,
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(
    enqueue,
    enqueue_under_a_key,
    enqueue_batch,
    list,
    show,
    events_and_attempts,
    why,
    cancel,
    retry,
    contracts,
);

const JOBS: &str = "/api/v1/jobs";
/// An id that is nobody's.
const NOBODY: &str = "job_00000000000000000000000007";

/// Makes a job, and gives its id.
async fn make(server: &Server, body: &str) -> String {
    server.post(JOBS, body).await.ok().at("/job/job_id")
}

/// Claims and starts one job of the queue.
async fn run(server: &Server, queue: &str) -> Answer {
    let body = format!(r#"{{"worker_id":"w1","queues":["{queue}"],"start":true}}"#);
    server.post("/api/v1/claims", &body).await.ok()
}

/// Settles what [`run`] got.
async fn settle(server: &Server, claimed: &Answer, outcome: &str) {
    let (job_id, epoch) = (claimed.at("/leases/0/job/job_id"), claimed.at("/leases/0/epoch"));
    let lease = format!(r#"{{"job_id":"{job_id}","epoch":{epoch},{outcome}}}"#);
    let body = format!(r#"{{"worker_id":"w1","leases":[{lease}]}}"#);
    let answer = server.post("/api/v1/leases/settle", &body).await.ok();
    assert_eq!(answer.at("/results/0/ok"), "true", "{}", answer.text);
}

async fn enqueue(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "enqueue", "A job is asked for.");
    page.post("Nothing is said: all is as usual.", JOBS, "{}").await;
    let body = r#"{
  "kind": "mail", "queue": "post", "priority": -5,
  "payload": {"to": "a@example.com", "amount": 12345678901234567890.10},
  "scheduled_at": "2126-01-02T03:04:05Z", "deadline_at": "2126-02-02T00:00:00Z",
  "timeout_ms": 60000, "heartbeat_timeout_ms": 5000, "schedule_to_start_ms": 3600000,
  "max_retries": 5, "retry": {"base_ms": 500, "max_backoff_ms": 10000},
  "idempotency_key": "order-7", "idempotency_scope": "orders", "task_id": "invoice-7",
  "limit_key": "customer-3", "unique_key": "invoice-7", "tags": ["red", "green"], "trace_id": "t-7"
}"#;
    page.post("Everything is said. Numbers are kept as they are written.", JOBS, body).await;
    let trace = [("content-type", "application/json"), ("x-trace-id", "shop-1")];
    page.ask("The trace comes with the call.", Method::POST, JOBS, &trace, "{}").await;
    page.post("Not JSON.", JOBS, r#"{"kind": "mail""#).await;
    page.post("JSON, and no object.", JOBS, "[]").await;
    page.post("A field that nobody knows.", JOBS, r#"{"kin": "mail"}"#).await;
    page.post("A name that is none.", JOBS, r#"{"kind": ""}"#).await;
    page.post("A value of another type.", JOBS, r#"{"max_retries": "three"}"#).await;
    page.post("A number that is out of bounds.", JOBS, r#"{"priority": 1001}"#).await;
    page.post("A time that is none.", JOBS, r#"{"scheduled_at": "tomorrow"}"#).await;
    page.post("No time at all to run.", JOBS, r#"{"timeout_ms": 0}"#).await;
    page.post("A parameter that is not there.", "/api/v1/jobs?queue=post", "{}").await;
    page.post("A contract that is not there.", "/api/v1/jobs?contract=none", "{}").await;
    let text = [("content-type", "text/plain")];
    page.ask("Not sent as JSON.", Method::POST, JOBS, &text, "{}").await;
    let body = r#"{"task_id": "invoice-7"}"#;
    page.post("Its task has a job that is not at its end.", JOBS, body).await;
    let body = r#"{"unique_key": "invoice-7"}"#;
    page.post("Its key is that of another job that is not at its end.", JOBS, body).await;
    let body = format!(r#"{{"parent_job_id": "{NOBODY}"}}"#);
    page.post("Its parent is not there.", JOBS, &body).await;
    page.finish();
}

async fn enqueue_under_a_key(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "idempotency", "A job is asked for more than once.");
    let body = r#"{"kind": "mail", "payload": {"b": 1, "a": 2}, "idempotency_key": "order-7"}"#;
    page.post("The first time.", JOBS, body).await;
    let again = r#"{"kind": "mail", "payload": {"a": 2, "b": 1}, "idempotency_key": "order-7"}"#;
    page.post("The same again, whatever the order of its members: nothing is made.", JOBS, again)
        .await;
    let keyed = [("content-type", "application/json"), ("idempotency-key", "order-7")];
    let body = r#"{"kind": "mail", "payload": {"a": 2, "b": 1}}"#;
    page.ask("The key as a header is the same key.", Method::POST, JOBS, &keyed, body).await;
    let body = r#"{"kind": "mail", "payload": {"a": 3}, "queue": "post"}"#;
    page.ask("Other fields under the same key.", Method::POST, JOBS, &keyed, body).await;
    let body = r#"{"idempotency_key": "order-8"}"#;
    page.ask("Two keys that differ.", Method::POST, JOBS, &keyed, body).await;
    let body = r#"{"kind": "mail", "job_id": "job_00000000000000000000000008"}"#;
    page.post("An id that the caller made.", JOBS, body).await;
    page.post("It gives the same job.", JOBS, body).await;
    let body = r#"{"kind": "letter", "job_id": "job_00000000000000000000000008"}"#;
    page.post("It is taken.", JOBS, body).await;
    let body = r#"{"idempotency_scope": "orders"}"#;
    page.post("A scope without a key.", JOBS, body).await;
    let empty = [("content-type", "application/json"), ("idempotency-key", "")];
    page.ask("A key that is empty.", Method::POST, JOBS, &empty, "{}").await;
    page.finish();
}

async fn enqueue_batch(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "batch", "Many jobs are asked for; each has its own answer.");
    let path = "/api/v1/jobs/batch";
    let body = r#"{"jobs": [
  {"kind": "mail", "idempotency_key": "a"},
  {"kind": "mail", "idempotency_key": "a"},
  {"kind": ""},
  {"kind": "mail", "idempotency_key": "a", "queue": "post"},
  {"scheduled_at": "2126-01-02T03:04:05Z"},
  7,
  ["mail"]
]}"#;
    page.post("Good ones and bad ones.", path, body).await;
    page.post("None.", path, r#"{"jobs": []}"#).await;
    page.post("Not even a list.", path, "{}").await;
    let many = format!(r#"{{"jobs": [{}]}}"#, vec!["{}"; 1_001].join(","));
    let answer = server.post(path, &many).await;
    assert_eq!((answer.status.as_u16(), answer.at("/code").as_str()), (413, "TOO_LARGE"));
    page.finish();
}

async fn list(store: Store) {
    let server = Server::start(&store);
    for (kind, queue) in [("mail", "post"), ("mail", "post"), ("report", "office")] {
        make(&server, &format!(r#"{{"kind":"{kind}","queue":"{queue}","tags":["{kind}"]}}"#)).await;
    }
    let mut page = Page::new(&server, "list", "Jobs are looked for.");
    page.get("By tag: newest first, and no payloads.", "/api/v1/jobs?tag=report").await;
    let first = "/api/v1/jobs?queue=post&limit=1&contract=jobs";
    let answer = page.get("One at a time, in the words of a contract.", first).await;
    let next = answer.at("/next");
    let second = server.get(&format!("{first}&cursor={next}")).await.ok();
    assert_ne!(second.at("/items/0/job_id"), answer.at("/items/0/job_id"));
    page.get("By state: none.", "/api/v1/jobs?state=running,waiting").await;
    page.get("By time: none.", "/api/v1/jobs?created_from=2126-01-01T00:00:00Z").await;
    page.get(
        "By kind and time: none.",
        "/api/v1/jobs?kind=mail&created_before=1999-01-01T00:00:00Z",
    )
    .await;
    page.get("A state that is not there.", "/api/v1/jobs?state=done").await;
    page.get("A limit that is too high.", "/api/v1/jobs?limit=1001").await;
    page.get("A limit that is no number.", "/api/v1/jobs?limit=all").await;
    page.get("A time that is none.", "/api/v1/jobs?created_from=yesterday").await;
    page.get("A queue that can be none.", "/api/v1/jobs?queue=a%00b").await;
    page.get("A cursor that is none.", "/api/v1/jobs?cursor=7").await;
    page.get("A parameter that is not there.", "/api/v1/jobs?states=queued").await;
    page.get("A parameter twice.", "/api/v1/jobs?state=queued&state=running").await;
    page.finish();
}

async fn show(store: Store) {
    let server = Server::start(&store);
    let id = make(&server, r#"{"kind":"mail","payload":{"to":"a@example.com","n":1.50}}"#).await;
    let mut page = Page::new(&server, "show", "A job as it stands.");
    let path = format!("/api/v1/jobs/{id}");
    page.get("It waits.", &path).await;
    let claimed = run(&server, "default").await;
    page.get("It runs.", &path).await;
    let outcome = r#""outcome":"partial","result":{"sent":[1.0,2]},"remaining":["c@example.com"]"#;
    settle(&server, &claimed, outcome).await;
    page.get("It came to its end, in part.", &path).await;
    page.get("One that is not there.", &format!("/api/v1/jobs/{NOBODY}")).await;
    page.get("What is no id is nobody's.", "/api/v1/jobs/seven").await;
    page.get("A parameter that is not there.", &format!("{path}?with=payload")).await;
    page.finish();
}

async fn events_and_attempts(store: Store) {
    let server = Server::start(&store);
    let body = r#"{"kind":"mail","trace_id":"t-1","max_retries":1,"retry":{"base_ms":60000,"max_backoff_ms":60000}}"#;
    let id = make(&server, body).await;
    let claimed = run(&server, "default").await;
    let outcome = r#""outcome":"failed","error":{"code":"SMTP_BUSY","message":"try later","retryable":true},"stats":{"ms":7}"#;
    settle(&server, &claimed, outcome).await;
    server.post(&format!("/api/v1/jobs/{id}/retry"), "").await.ok();
    settle(&server, &run(&server, "default").await, outcome).await;
    let path = format!("/api/v1/jobs/{id}/events");
    let mut page = Page::new(&server, "events", "The history of a job.");
    page.get("All of it.", &path).await;
    page.get("A part of it.", &format!("{path}?after=2&limit=1")).await;
    for contract in ["runs", "tasks", "jobs", "ingest"] {
        let about = format!("In the words of contract {contract}.");
        page.get(&about, &format!("{path}?contract={contract}&after=5")).await;
    }
    page.get("One that is not there.", &format!("/api/v1/jobs/{NOBODY}/events")).await;
    page.get("After what is no number.", &format!("{path}?after=-1")).await;
    page.get("A contract that is not there.", &format!("{path}?contract=none")).await;
    page.finish();
    let path = format!("/api/v1/jobs/{id}/attempts");
    let mut page = Page::new(&server, "attempts", "Each try of a job.");
    page.get("All of them.", &path).await;
    page.get("One that is not there.", &format!("/api/v1/jobs/{NOBODY}/attempts")).await;
    page.get("A parameter that is not there.", &format!("{path}?limit=1")).await;
    page.finish();
}

async fn why(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "why", "Why a job is not running.");
    let id = make(&server, "{}").await;
    let path = format!("/api/v1/jobs/{id}/why");
    page.get("Nobody listens to its queue.", &path).await;
    let claimed = run(&server, "default").await;
    page.get("It is running.", &path).await;
    settle(&server, &claimed, r#""outcome":"succeeded""#).await;
    page.get("It is at its end.", &path).await;
    let later = make(&server, r#"{"scheduled_at":"2126-01-02T03:04:05Z"}"#).await;
    page.get("Its time has not come.", &format!("/api/v1/jobs/{later}/why")).await;
    page.get("One that is not there.", &format!("/api/v1/jobs/{NOBODY}/why")).await;
    page.finish();
}

async fn cancel(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "cancel", "A job is asked to stop, or stopped.");
    let path = |id: &str| format!("/api/v1/jobs/{id}/cancel");
    let waits = make(&server, "{}").await;
    let body = r#"{"reason": "not wanted any more"}"#;
    page.post("One that waits is cancelled at once.", &path(&waits), body).await;
    page.post("Once more.", &path(&waits), "").await;
    let contract = format!("{}?contract=tasks", path(&waits));
    page.post("The same in the words of a contract.", &contract, "").await;
    let runs = make(&server, r#"{"queue":"runs"}"#).await;
    run(&server, "runs").await;
    page.post("One that runs is asked first.", &path(&runs), r#"{"grace_ms": 60000}"#).await;
    page.post("With force it is not.", &path(&runs), r#"{"force": true}"#).await;
    page.post("One that is not there.", &path(NOBODY), "").await;
    page.post("A field that nobody knows.", &path(&runs), r#"{"forced": true}"#).await;
    page.finish();
}

async fn retry(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "retry", "A job is to be tried again now.");
    let path = |id: &str| format!("/api/v1/jobs/{id}/retry");
    let id = make(&server, r#"{"retry":{"base_ms":60000,"max_backoff_ms":60000}}"#).await;
    page.post("One that waits for its turn.", &path(&id), "").await;
    let failed = r#""outcome":"failed","error":{"code":"SMTP_BUSY","retryable":true}"#;
    settle(&server, &run(&server, "default").await, failed).await;
    page.post("One that waits before it is tried again.", &path(&id), "").await;
    let buried = r#""outcome":"failed","error":{"code":"NO_SUCH_ADDRESS","retryable":false}"#;
    settle(&server, &run(&server, "default").await, buried).await;
    page.post("One that failed for good: its task runs again.", &path(&id), "").await;
    page.post("That one is not at its end yet.", &path(&id), "").await;
    page.post("It is not meant to run again.", &path(&id), r#"{"op": "retry_now"}"#).await;
    settle(&server, &run(&server, "default").await, r#""outcome":"succeeded""#).await;
    let later = make(&server, r#"{"scheduled_at":"2126-01-02T03:04:05Z"}"#).await;
    page.post("One whose time has not come.", &path(&later), "").await;
    let contract = format!("{}?contract=jobs", path(&later));
    page.post("In the words of a contract.", &contract, "").await;
    page.post("One that is not there.", &path(NOBODY), "").await;
    page.finish();
}

async fn contracts(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "contracts", "The same job in the words of each contract.");
    for contract in ["runs", "tasks", "jobs", "ingest"] {
        let path = format!("/api/v1/jobs?contract={contract}");
        let body = format!(
            r#"{{"kind": "mail", "payload": {{"n": 1.50}}, "idempotency_key": "{contract}"}}"#
        );
        page.post(&format!("Asked for under contract {contract}."), &path, &body).await;
        let list = server.get("/api/v1/jobs?limit=1").await.ok();
        let path = format!("/api/v1/jobs/{}?contract={contract}", list.at("/items/0/job_id"));
        page.get("As it stands.", &path).await;
        let body = format!(r#"{{"kind": "letter", "idempotency_key": "{contract}"}}"#);
        let path = format!("/api/v1/jobs?contract={contract}");
        page.post("Its key with other fields.", &path, &body).await;
    }
    page.finish();
}
