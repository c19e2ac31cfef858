//! The contracts with paths of their own: tasks, runs, and the replays of contract jobs.

use serde_json::{Value, json};

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(tasks, event_ids, runs, internal, replays_by_workers, replays_by_the_internal_call);

/// An event has one id, in the feed and in the history of its job, however often it is read.
async fn event_ids(store: Store) {
    let server = Server::start(&store);
    let ids = async |path: &str| -> Vec<String> {
        let events = server.get(path).await.ok().json();
        let events = events["items"].as_array().expect("a list").clone();
        events.iter().map(|it| it["event_id"].as_str().expect("an id").to_owned()).collect()
    };
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(
            server.post("/api/v1/jobs", r#"{"max_retries": 0}"#).await.ok().at("/job/job_id"),
        );
    }
    for id in &jobs {
        let path = format!("/api/v1/internal/jobs/{id}/run?force_fail=true");
        server.post(&path, "").await.ok();
    }
    let mut all = Vec::new();
    for id in &jobs {
        let path = format!("/api/v1/jobs/{id}/events?contract=tasks");
        let own = ids(&path).await;
        assert!(own.len() > 2, "{own:?}");
        assert_eq!(own, ids(&path).await);
        all.extend(own);
    }
    let mut feed = ids("/api/v1/events?contract=tasks&limit=1000").await;
    all.sort();
    feed.sort();
    assert_eq!(all, feed);
    feed.dedup();
    assert_eq!(all, feed, "two events have one id");
}

/// The documents of the contract, as it writes them.
async fn tasks(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "tasks", "Contract tasks.");
    let body = r#"{
  "task_id": "task_20260225_0001",
  "schedule_type": "at",
  "scheduled_at": "2026-02-25T12:00:00Z",
  "timeout_ms": 30000,
  "max_retries": 2,
  "idempotency_key": "order_1001",
  "idempotency_scope": "tenant_a",
  "payload": {
    "channel": "dingtalk",
    "request_id": "req-1"
  }
}"#;
    let path = "/api/v1/tasks";
    page.post("A task is created.", path, body).await;
    page.post("The same again is a hit.", path, body).await;
    let other = body.replace("30000", "40000");
    page.post("The same key with other fields.", path, &other).await;
    let other = body.replace("order_1001", "order_1002");
    page.post("The same task under another key.", path, &other).await;
    let other = body.replace("\"at\"", "\"cron\"");
    page.post("A time that comes again is a schedule.", path, &other).await;
    page.post("No key.", path, r#"{"idempotency_scope": "tenant_a"}"#).await;
    page.post("A field that nobody knows.", path, r#"{"state": "running"}"#).await;
    let task = "/api/v1/tasks/task_20260225_0001";
    page.get("As it stands.", task).await;
    fail_until_the_end(&server, 3).await;
    page.get("Its retries are used up.", task).await;
    let events = server.get("/api/v1/events?contract=tasks").await.ok();
    let last = events.json()["items"].as_array().and_then(|items| items.last().cloned());
    let mut last = last.expect("there are events");
    last["event_id"] = json!("evt_task_1");
    last["payload"]["occurred_at"] = json!("2026-02-25T12:00:30Z");
    let expected = json!({
        "type": "task_state_changed",
        "source": "gateway.scheduler",
        "session_key": "scheduler:default",
        "event_id": "evt_task_1",
        "payload": {
            "task_id": "task_20260225_0001",
            "from_state": "running",
            "to_state": "failed",
            "occurred_at": "2026-02-25T12:00:30Z",
            "attempt": 3,
            "reason_code": "TASK_RETRY_EXHAUSTED",
            "reason_message": "TRANSIENT_FAILURE: the call asked for a failure exhausted retries",
            "idempotent_hit": false
        }
    });
    assert_eq!(last, expected);
    page.post("It is at its end.", &format!("{task}/cancel"), "").await;
    let body =
        r#"{"task_id": "later", "idempotency_key": "k", "scheduled_at": "2126-01-01T00:00:00Z"}"#;
    server.post(path, body).await.ok();
    page.post("One whose time has not come.", "/api/v1/tasks/later/cancel", "").await;
    page.get("One that is not there.", "/api/v1/tasks/nothing").await;
    page.post("Nor can it be cancelled.", "/api/v1/tasks/nothing/cancel", "").await;
    page.finish();
}

/// Lets the newest job fail so many times.
async fn fail_until_the_end(server: &Server, times: usize) {
    let id = server.get("/api/v1/jobs?limit=1").await.ok().at("/items/0/job_id");
    for _ in 0..times {
        let run = format!("/api/v1/internal/jobs/{id}/run?transient_fail=true");
        server.post(&run, "").await.ok();
    }
}

async fn runs(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "runs", "Contract runs.");
    let path = "/api/v1/task-runs";
    let body = r#"{"task_id": "import", "idempotency_key": "monday", "payload": {"n": 1.50}, "trace_id": "t-1"}"#;
    let run = page.post("A run is asked for.", path, body).await.at("/run_id");
    let body = r#"{"task_id": "import", "idempotency_key": "monday", "payload": {"n": 2}}"#;
    page.post("A known key gives its run, whatever else is sent.", path, body).await;
    let body = r#"{"task_id": "import", "idempotency_key": "tuesday"}"#;
    page.post("Another, while it is not at its end.", path, body).await;
    page.post("An empty key.", path, r#"{"task_id": "import", "idempotency_key": ""}"#).await;
    page.post("No task.", path, r#"{"idempotency_key": "monday"}"#).await;
    let one = format!("{path}/{run}");
    page.get("As it stands.", &one).await;
    page.post("It is cancelled.", &format!("{one}/cancel"), r#"{"reason": "a holiday"}"#).await;
    page.post("Once more.", &format!("{one}/cancel"), "").await;
    let body = r#"{"task_id": "import", "idempotency_key": "tuesday"}"#;
    let answer = server.post(path, body).await.ok();
    assert_eq!(answer.at("/attempt"), "2", "{}", answer.text);
    let made = format!("trace-run-{}-", answer.at("/run_id"));
    assert!(answer.at("/trace_id").starts_with(&made), "{}", answer.text);
    let nobody = format!("{path}/job_00000000000000000000000007");
    page.get("One that is not there.", &nobody).await;
    page.post("Nor can it be cancelled.", &format!("{nobody}/cancel"), "").await;
    page.finish();
}

pub(crate) async fn enqueue(server: &Server, trace: &str) -> String {
    let body = format!(r#"{{"kind":"mail","trace_id":"{trace}"}}"#);
    server.post("/api/v1/jobs", &body).await.ok().at("/job/job_id")
}

async fn internal(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "internal", "A job is run by a call, in development.");
    let path = |id: &str| format!("/api/v1/internal/jobs/{id}/run");
    let id = enqueue(&server, "t-1").await;
    page.post("It succeeds.", &path(&id), "").await;
    page.post("Once more.", &path(&id), "").await;
    let id = enqueue(&server, "t-2").await;
    let fails = format!("{}?transient_fail=true", path(&id));
    for about in ["It fails, and is tried again.", "Twice.", "Three times.", "For good."] {
        page.post(about, &fails, "").await;
    }
    let id = enqueue(&server, "t-3").await;
    page.post("It fails for good at once.", &format!("{}?force_fail=true", path(&id)), "").await;
    let both = format!("{}?force_fail=true&transient_fail=true", path(&id));
    page.post("Two ways to fail.", &both, "").await;
    page.post("Neither yes nor no.", &format!("{}?force_fail=1", path(&id)), "").await;
    page.post("One that is not there.", &path("job_00000000000000000000000007"), "").await;
    let id = enqueue(&server, "t-4").await;
    let interrupt = format!("/api/v1/internal/jobs/{id}/interrupt");
    page.post("Nobody holds it, so no lease can end.", &interrupt, "").await;
    server.post("/api/v1/claims", r#"{"worker_id": "w1", "start": true}"#).await.ok();
    page.post("Its lease ends as if the process of its worker had died.", &interrupt, "").await;
    page.post("A demo is in windlass dev alone.", "/api/v1/internal/demo", "").await;
    page.finish();
}

/// The states of a job in the words of contract jobs, in their order.
async fn transitions(server: &Server, id: &str) -> Vec<String> {
    let events = server.get(&format!("/api/v1/jobs/{id}/events?contract=jobs")).await.ok();
    let events = events.json();
    let payloads = events["items"].as_array().expect("a list").iter().map(|it| &it["payload"]);
    payloads.map(|it| it["status"].as_str().expect("a word").to_owned()).collect()
}

fn words(path: &str) -> Vec<String> {
    path.split(" -> ").map(str::to_owned).collect()
}

const RP_001: &str = "queued -> running -> succeeded";
const RP_002: &str = "queued -> running -> retrying -> running -> succeeded";
const RP_003: &str = "queued -> running -> retrying -> running -> retrying -> running -> retrying -> running -> succeeded";
const RP_004: &str = "queued -> running -> retrying -> running -> retrying -> running -> retrying -> running -> dlq_pending -> dlq_recorded -> failed";

/// What a replay is about: how often it fails, whether it then succeeds, what is to be seen, and the retries.
const REPLAYS: [(&str, usize, bool, &str, u64); 4] = [
    ("rp-001", 0, true, RP_001, 0),
    ("rp-002", 1, true, RP_002, 1),
    ("rp-003", 3, true, RP_003, 3),
    ("rp-004", 4, false, RP_004, 3),
];

async fn check(
    server: &Server,
    id: &str,
    (trace, _, succeeds, path, retries): (&str, usize, bool, &str, u64),
) {
    assert_eq!(transitions(server, id).await, words(path), "{trace}");
    let job = server.get(&format!("/api/v1/jobs/{id}?contract=jobs")).await.ok().json();
    assert_eq!((&job["job_id"], &job["trace_id"]), (&json!(id), &json!(trace)));
    assert_eq!(job["retry_count"], retries, "{trace}");
    assert_eq!(job["status"], if succeeds { "succeeded" } else { "failed" }, "{trace}");
    assert_eq!(job["dlq_id"] == Value::Null, succeeds, "{trace}: {job}");
    if !succeeds {
        let letter = format!("/api/v1/dlq/{}", job["dlq_id"].as_str().expect("an id"));
        assert_eq!(server.get(&letter).await.ok().at("/job_id"), id);
    }
    // RP-005: whatever would change an end is refused.
    let cancel = server.post(&format!("/api/v1/jobs/{id}/cancel?contract=jobs"), "").await;
    assert_eq!(cancel.status, 409);
    assert_eq!(cancel.at("/code"), "WF_STATE_TRANSITION_INVALID");
    let run = server.post(&format!("/api/v1/internal/jobs/{id}/run"), "").await;
    assert_eq!(
        (run.status.as_u16(), run.at("/code").as_str()),
        (409, "WF_STATE_TRANSITION_INVALID")
    );
    assert_eq!(run.at("/job_id"), id);
    assert_eq!(transitions(server, id).await, words(path), "{trace}");
}

/// RP-001 to RP-005 as workers live through them.
async fn replays_by_workers(store: Store) {
    let server = Server::start(&store);
    for replay in REPLAYS {
        let (trace, fails, succeeds, ..) = replay;
        let id = enqueue(&server, trace).await;
        for retry_count in 0..=fails - usize::from(!succeeds) {
            let body = r#"{"worker_id":"w1","start":true,"wait_ms":10000}"#;
            let lease = server.post("/api/v1/claims", body).await.ok();
            assert_eq!(lease.at("/leases/0/execution_key"), format!("{id}+{retry_count}"));
            let end = match retry_count < fails {
                true => r#""outcome":"failed","error":{"code":"SMTP_BUSY","retryable":true}"#,
                false => r#""outcome":"succeeded""#,
            };
            let epoch = lease.at("/leases/0/epoch");
            let entry = format!(r#"{{"job_id":"{id}","epoch":{epoch},{end}}}"#);
            let body = format!(r#"{{"worker_id":"w1","leases":[{entry}]}}"#);
            let settled = server.post("/api/v1/leases/settle", &body).await.ok();
            assert_eq!(settled.at("/results/0/ok"), "true", "{}", settled.text);
            if retry_count < fails && retry_count < 3 {
                // Not to wait for its time.
                server.post(&format!("/api/v1/jobs/{id}/retry"), "").await.ok();
            }
            if !lease_is_last(retry_count, fails, succeeds) {
                continue;
            }
            // The worker that ended it cannot end it in another way.
            let other = format!(r#"{{"job_id":"{id}","epoch":{epoch},"outcome":"cancelled"}}"#);
            let stale = format!(r#"{{"job_id":"{id}","epoch":0,"outcome":"cancelled"}}"#);
            let body = format!(r#"{{"worker_id":"w1","leases":[{other},{stale}]}}"#);
            for (query, code) in [
                ("", "INVALID_TRANSITION"),
                ("?contract=runs", "INVALID_TRANSITION"),
                ("?contract=tasks", "TASK_INVALID_TRANSITION"),
                ("?contract=jobs", "WF_STATE_TRANSITION_INVALID"),
            ] {
                let path = format!("/api/v1/leases/settle{query}");
                let settled = server.post(&path, &body).await.ok();
                let codes = (settled.at("/results/0/code"), settled.at("/results/1/code"));
                assert_eq!(codes, (code.to_owned(), "STALE_ATTEMPT".to_owned()), "{path}");
            }
        }
        check(&server, &id, replay).await;
    }
    server.stop();
    store.check();
}

fn lease_is_last(retry_count: usize, fails: usize, succeeds: bool) -> bool {
    retry_count == fails - usize::from(!succeeds)
}

/// RP-001 to RP-005 by the call that is there for them.
async fn replays_by_the_internal_call(store: Store) {
    let server = Server::start(&store);
    for replay in REPLAYS {
        let (trace, fails, succeeds, path, _) = replay;
        let id = enqueue(&server, trace).await;
        let mut seen = vec!["queued".to_owned()];
        let ends = vec!["?transient_fail=true"; fails].into_iter().chain(succeeds.then_some(""));
        for end in ends {
            let ran = server.post(&format!("/api/v1/internal/jobs/{id}/run{end}"), "").await.ok();
            assert_eq!((ran.at("/job_id"), ran.at("/trace_id")), (id.clone(), trace.to_owned()));
            let part = ran.json()["status_transition"].clone();
            seen.extend(serde_json::from_value::<Vec<String>>(part).expect("words"));
        }
        seen.dedup();
        assert_eq!(seen, words(path), "{trace}");
        check(&server, &id, replay).await;
    }
    server.stop();
    store.check();
}
