//! The words of a contract in lists, leases, events and links.

use serde_json::Value;

use crate::{
    client::{Answer, client, send},
    contracts::enqueue,
    on_both_stores,
    server::{Server, Store},
};

on_both_stores!(traces_of_events, lists_by_words, leases_in_words, requeued);

/// Every event shows a trace: that of its request, or else that of its job. And each has a number and a time, in every
/// contract.
async fn traces_of_events(store: Store) {
    let server = Server::start(&store);
    let made = server.post("/api/v1/task-runs", r#"{"task_id":"t","idempotency_key":"k"}"#).await;
    let made = made.ok();
    let (id, trace) = (made.at("/run_id"), made.at("/trace_id"));
    let uuid = trace.strip_prefix(&format!("trace-run-{id}-")).expect("it names its run");
    assert_eq!(uuid.len(), 36, "{uuid}");
    assert_eq!(&uuid[14..15], "4", "{uuid} is of version 4");
    assert!("89ab".contains(&uuid[19..20]), "{uuid} is of the usual variant");
    let body = r#"{"worker_id":"w1","start":true}"#;
    let lease = server.post("/api/v1/claims", body).await.ok();
    let epoch = lease.at("/leases/0/epoch");
    let body =
        format!(r#"{{"leases":[{{"job_id":"{id}","epoch":{epoch},"outcome":"succeeded"}}]}}"#);
    let json = ("content-type", "application/json");
    let path = "/api/v1/leases/settle";
    let settle = client().post(server.url(path)).header(json.0, json.1).header("x-trace-id", "t-9");
    send(settle.body(body)).await.expect("an answer").ok();

    let of = |events: &Value, at: &str| -> Vec<String> {
        let items = events["items"].as_array().expect("a list").iter();
        items.map(|event| event.pointer(at).unwrap_or(&Value::Null).to_string()).collect()
    };
    let own = serde_json::to_string(&trace).expect("text");
    let expected = [own.as_str(), &own, &own, r#""t-9""#];
    let history = server.get(&format!("/api/v1/jobs/{id}/events")).await.ok().json();
    assert_eq!(of(&history, "/trace_id"), expected);
    let feed = server.get("/api/v1/events").await.ok().json();
    assert_eq!(of(&feed, "/payload/trace_id"), expected);
    for contract in ["runs", "jobs", "ingest"] {
        let feed = server.get(&format!("/api/v1/events?contract={contract}")).await.ok().json();
        let path = format!("/api/v1/jobs/{id}/events?contract={contract}");
        let history = server.get(&path).await.ok().json();
        assert_eq!(feed["items"], history["items"], "{contract}");
        let numbers: Vec<u64> =
            of(&feed, "/number").iter().map(|it| it.parse().expect("a number")).collect();
        assert!(numbers.len() > 2 && numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
        assert!(of(&feed, "/at").iter().all(|at| at.ends_with("Z\"")), "{feed}");
    }
    server.stop();
}

/// Lists take the words of a contract, and find what the contract calls so.
async fn lists_by_words(store: Store) {
    let server = Server::start(&store);
    let mut jobs = Vec::new();
    for _ in 0..4 {
        let body = r#"{"retry": {"base_ms": 600000, "max_backoff_ms": 600000}}"#;
        jobs.push(server.post("/api/v1/jobs", body).await.ok().at("/job/job_id"));
    }
    let run = async |id: &str, end: &str| {
        server.post(&format!("/api/v1/internal/jobs/{id}/run{end}"), "").await.ok()
    };
    run(&jobs[0], "?transient_fail=true").await;
    run(&jobs[1], "?force_fail=true").await;
    // One that has started waits for a worker again: every contract says that it is running.
    let claim = r#"{"worker_id":"w1","start":true,"max":1}"#;
    let lease = server.post("/api/v1/claims", claim).await.ok();
    let (woken, epoch) = (lease.at("/leases/0/job/job_id"), lease.at("/leases/0/epoch"));
    assert_eq!(woken, jobs[2]);
    let entry = format!(r#"{{"job_id":"{woken}","epoch":{epoch},"until":"2000-01-01T00:00:00Z"}}"#);
    server.post("/api/v1/leases/wait", &format!(r#"{{"leases":[{entry}]}}"#)).await.ok();
    let state = async || server.get(&format!("/api/v1/jobs/{woken}")).await.ok().at("/state");
    while state().await != "queued" {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let listed = async |query: &str| -> Vec<String> {
        let list = server.get(&format!("/api/v1/jobs?{query}")).await.ok().json();
        let items = list["items"].as_array().expect("a list").clone();
        let id = |job: &Value| {
            ["job_id", "run_id", "task_id"]
                .iter()
                .find_map(|name| job[*name].as_str().map(str::to_owned))
        };
        items.iter().map(|job| id(job).expect("an id")).collect()
    };
    assert_eq!(listed("contract=jobs&state=retrying").await, jobs[..1]);
    assert_eq!(listed("contract=jobs&state=failed").await, jobs[1..2]);
    assert_eq!(listed("contract=jobs&state=running").await, jobs[2..3]);
    assert_eq!(listed("contract=jobs&state=queued").await, jobs[3..]);
    assert_eq!(listed("contract=jobs&state=queued&limit=1").await, jobs[3..]);
    assert_eq!(listed("contract=runs&state=running,retry_scheduled").await, [&*jobs[2], &jobs[0]]);
    assert_eq!(listed("contract=tasks&state=ready").await, [&*jobs[3], &jobs[0]]);
    assert_eq!(listed("state=queued").await, [&*jobs[3], &jobs[2]]);
    let unknown = server.get("/api/v1/jobs?contract=jobs&state=retry_scheduled").await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.at("/code")),
        (400, "MALFORMED_REQUEST".to_owned())
    );
    assert!(unknown.at("/detail").contains("retrying"), "{}", unknown.text);
    server.stop();
}

/// What a lease is told is in the words of the contract that is asked for.
async fn leases_in_words(store: Store) {
    let server = Server::start(&store);
    let id = enqueue(&server, "t").await;
    let claim = server.post("/api/v1/claims", r#"{"worker_id":"w1"}"#).await.ok();
    let epoch = claim.at("/leases/0/epoch");
    let state = async |path: &str, more: &str| {
        let entry = format!(r#"{{"job_id":"{id}","epoch":{epoch}{more}}}"#);
        let body = format!(r#"{{"leases":[{entry}]}}"#);
        server.post(&format!("/api/v1/leases/{path}"), &body).await.ok().at("/results/0/state")
    };
    assert_eq!(state("renew", "").await, "dispatched");
    assert_eq!(state("renew?contract=tasks", "").await, "ready");
    assert_eq!(state("start?contract=tasks", "").await, "running");
    let failed = r#","outcome":"failed","error":{"code":"SMTP_BUSY","retryable":true}"#;
    assert_eq!(state("settle?contract=jobs", failed).await, "retrying");
    assert_eq!(state("settle?contract=tasks", failed).await, "ready");
    assert_eq!(state("settle", failed).await, "retry_scheduled");
    server.stop();
}

/// A job that was made from a dead letter names it in contract jobs.
async fn requeued(store: Store) {
    let server = Server::start(&store);
    let id = enqueue(&server, "t").await;
    server.post(&format!("/api/v1/internal/jobs/{id}/run?force_fail=true"), "").await.ok();
    let letter = id.replace("job_", "dlq_");
    let made = server.post(&format!("/api/v1/dlq/{letter}/requeue"), "{}").await.ok().json();
    let new = made["job"]["job_id"].as_str().expect("a new job").to_owned();
    let of = async |id: &str| server.get(&format!("/api/v1/jobs/{id}?contract=jobs")).await.ok();
    let links = |job: &Answer| (job.at("/dlq_id"), job.at("/requeued_from_dlq_id"));
    assert_eq!(links(&of(&id).await), (letter.clone(), "null".to_owned()));
    assert_eq!(links(&of(&new).await), ("null".to_owned(), letter));
    server.stop();
}
