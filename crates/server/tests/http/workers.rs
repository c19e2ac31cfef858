//! Workers over HTTP: claim, start, renew, settle and release, answer by answer.

use std::time::Duration;

use reqwest::Method;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(
    claim,
    start,
    renew,
    settle,
    release,
    wait,
    a_long_poll_hears_of_a_new_job,
    a_duplicate_of_a_claim_that_comes_late_gets_nothing,
    a_duplicate_of_a_claim_whose_caller_hangs_up_takes_nothing_away,
    a_bell_rings_for_a_new_job,
    what_failed_together_does_not_come_back_together,
);

const CLAIMS: &str = "/api/v1/claims";
/// An id that is nobody's.
const NOBODY: &str = "job_00000000000000000000000007";

async fn make(server: &Server, body: &str) -> String {
    server.post("/api/v1/jobs", body).await.ok().at("/job/job_id")
}

/// Makes so many jobs in the queue, and claims them.
async fn claimed(server: &Server, queue: &str, count: usize, more: &str) -> Vec<Lease> {
    let job =
        format!(r#"{{"queue":"{queue}","retry":{{"base_ms":60000,"max_backoff_ms":60000}}}}"#);
    let jobs = vec![job; count].join(",");
    server.post("/api/v1/jobs/batch", &format!(r#"{{"jobs":[{jobs}]}}"#)).await.ok();
    let body = format!(r#"{{"worker_id":"w1","queues":["{queue}"],"max":{count}{more}}}"#);
    let answer = server.post(CLAIMS, &body).await.ok();
    let lease = |at| Lease {
        job_id: answer.at(&format!("/leases/{at}/job/job_id")),
        epoch: answer.at(&format!("/leases/{at}/epoch")),
    };
    (0..count).map(lease).collect()
}

struct Lease {
    job_id: String,
    epoch: String,
}

impl Lease {
    /// An entry about it, with more in it.
    fn with(&self, more: &str) -> String {
        let comma = if more.is_empty() { "" } else { ", " };
        format!(r#"{{"job_id": "{}", "epoch": {}{comma}{more}}}"#, self.job_id, self.epoch)
    }
}

/// The body of a call about these entries.
fn about(entries: &[String]) -> String {
    format!("{{\"worker_id\": \"w1\", \"leases\": [\n  {}\n]}}", entries.join(",\n  "))
}

async fn claim(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "claim", "A worker asks for jobs.");
    make(&server, r#"{"kind":"mail","payload":{"to":"a@example.com","n":1.50}}"#).await;
    make(&server, r#"{"kind":"mail","queue":"post","priority":5}"#).await;
    let urgent = make(&server, r#"{"kind":"mail","queue":"post","priority":-5}"#).await;
    let body = r#"{"worker_id": "w1"}"#;
    page.post("One of the usual queue. It is dispatched, and has not started.", CLAIMS, body).await;
    page.post("There is no other.", CLAIMS, body).await;
    let body = r#"{
  "worker_id": "w1", "queues": ["post", "office"], "kinds": ["mail"], "max": 1, "lease_ms": 60000,
  "wait_ms": 1000, "start": true, "claim_id": "0b7c1f0e-6a51-4b6f-9a39-7d7b7f1f5a20"
}"#;
    let answer =
        page.post("The most urgent comes first, and is started at once.", CLAIMS, body).await;
    assert_eq!(answer.at("/leases/0/job/job_id"), urgent);
    let again = page
        .post("The same claim again gets the same lease, and no other job.", CLAIMS, body)
        .await;
    assert_eq!(again.at("/leases/0/job/job_id"), urgent);
    let body = r#"{"worker_id": "w1", "queues": ["post"], "kinds": ["report"]}"#;
    page.post("Nothing of this kind.", CLAIMS, body).await;
    page.post("Nobody asks.", CLAIMS, r#"{"queues": ["post"]}"#).await;
    page.post("A name that is none.", CLAIMS, r#"{"worker_id": "a/b"}"#).await;
    page.post("A lease that is too short.", CLAIMS, r#"{"worker_id": "w1", "lease_ms": 99}"#).await;
    page.post("A lease that is too long.", CLAIMS, r#"{"worker_id": "w1", "lease_ms": 86400001}"#)
        .await;
    page.post("An identity that is none.", CLAIMS, r#"{"worker_id": "w1", "claim_id": ""}"#).await;
    page.post("A field that nobody knows.", CLAIMS, r#"{"worker_id": "w1", "queue": "post"}"#)
        .await;
    page.post("A queue that is none.", CLAIMS, r#"{"worker_id": "w1", "queues": [""]}"#).await;
    page.post("A parameter that is not there.", "/api/v1/claims?max=3", r#"{"worker_id": "w1"}"#)
        .await;
    page.finish();
}

async fn start(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "start", "A worker begins to run what it claimed.");
    let path = "/api/v1/leases/start";
    let leases = claimed(&server, "post", 1, "").await;
    let entries = [
        leases[0].with(""),
        leases[0].with(""),
        Lease { epoch: "9".to_owned(), job_id: leases[0].job_id.clone() }.with(""),
        Lease { epoch: "1".to_owned(), job_id: NOBODY.to_owned() }.with(""),
        format!(r#"{{"job_id": "{}"}}"#, leases[0].job_id),
    ];
    let about_it =
        "Once, once more, under another epoch, one that is not there, one without an epoch.";
    page.post(about_it, path, &about(&entries)).await;
    page.post("No leases.", path, r#"{"worker_id": "w1"}"#).await;
    page.post("None.", path, r#"{"leases": []}"#).await;
    page.finish();
}

async fn renew(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "renew", "A worker keeps what it holds, and hears of it.");
    let path = "/api/v1/leases/renew";
    let leases = claimed(&server, "post", 3, r#","start":true"#).await;
    let cancel = format!("/api/v1/jobs/{}/cancel", leases[1].job_id);
    server.post(&cancel, "").await.ok();
    server
        .post(&format!("/api/v1/jobs/{}/cancel", leases[2].job_id), r#"{"force":true}"#)
        .await
        .ok();
    let entries = [
        leases[0].with(r#""heartbeat": true, "progress": {"done": 0.50}"#),
        leases[1].with(""),
        leases[2].with(""),
        Lease { epoch: "1".to_owned(), job_id: NOBODY.to_owned() }.with(""),
    ];
    let about_it = "One is kept, one is to be cancelled, one is lost, one never was.";
    page.post(about_it, path, &about(&entries)).await;
    let body = r#"{"worker_id": "w1", "lease_ms": 60000}"#;
    let answer = page.post("All that the worker holds.", path, body).await;
    assert_eq!(answer.json()["results"].as_array().map(Vec::len), Some(2));
    page.post("A worker that holds nothing.", path, r#"{"worker_id": "w2"}"#).await;
    page.post("Nobody asks.", path, "{}").await;
    let body = r#"{"worker_id": "w1", "lease_ms": 1}"#;
    page.post("Too short, for all.", path, body).await;
    let body = format!(r#"{{"lease_ms": 1, "leases": [{}]}}"#, leases[0].with(""));
    page.post("Too short, for one.", path, &body).await;
    let body = format!(r#"{{"leases": [{{"job_id": "{}"}}]}}"#, leases[0].job_id);
    page.post("Without an epoch.", path, &body).await;
    page.finish();
}

async fn settle(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "settle", "A worker reports how executions ended.");
    let path = "/api/v1/leases/settle";
    let leases = claimed(&server, "post", 6, r#","start":true"#).await;
    let failed = |more: &str| {
        format!(
            r#""outcome": "failed", "error": {{"code": "SMTP_BUSY", "message": "try later"{more}}}"#
        )
    };
    let entries = [
        leases[0].with(r#""outcome": "succeeded", "result": {"sent": 1.50}, "stats": {"ms": 7}"#),
        leases[1].with(r#""outcome": "partial", "result": 1, "remaining": [2, 3]"#),
        leases[2].with(&failed(r#", "class": "transient""#)),
        leases[3].with(&failed(r#", "class": "permanent""#)),
        leases[4].with(r#""outcome": "cancelled", "reason": "the machine stops""#),
        leases[5].with(&failed(r#", "retryable": true, "retry_after_ms": 120000"#)),
    ];
    let every = page.post("Every outcome.", path, &about(&entries)).await.json();
    let again =
        page.post("The same again gets the same answers.", path, &about(&entries)).await.json();
    assert_eq!(every, again);
    let left = claimed(&server, "left", 2, "").await;
    let entries = [
        leases[0].with(&failed(r#", "retryable": true"#)),
        leases[2].with(r#""outcome": "succeeded""#),
        left[0].with(r#""outcome": "succeeded""#),
        Lease { epoch: "1".to_owned(), job_id: NOBODY.to_owned() }
            .with(r#""outcome": "succeeded""#),
    ];
    let about_it =
        "After its end, between two tries, before its start, and of a job that is not there.";
    page.post(about_it, path, &about(&entries)).await;
    let entries = [
        left[0].with(r#""outcome": "done""#),
        left[0].with(r#""outcome": "failed""#),
        left[0].with(r#""outcome": "partial", "result": 1"#),
        left[0].with(r#""outcome": "succeeded", "error": {"code": "X"}"#),
        left[0].with(r#""outcome": "succeeded", "remaining": 1"#),
        left[0].with(r#""outcome": "failed", "result": 1, "error": {"code": "X"}"#),
        left[0].with(r#""outcome": "cancelled", "result": 1"#),
        left[0].with(r#""outcome": "failed", "error": {"code": "X", "class": "bad"}"#),
        left[0].with(
            r#""outcome": "failed", "error": {"code": "X", "message": "shall it be tried again?"}"#,
        ),
        r#"{"outcome": "succeeded"}"#.to_owned(),
    ];
    page.post("What does not fit together.", path, &about(&entries)).await;
    let trace = [("content-type", "application/json"), ("x-trace-id", "t-9")];
    let start = about(&[left[1].with("")]);
    server.post("/api/v1/leases/start", &start).await.ok();
    let body = about(&[left[1].with(r#""outcome": "succeeded""#)]);
    page.ask("A trace of its own.", Method::POST, path, &trace, &body).await;
    let events = server.get(&format!("/api/v1/jobs/{}/events?after=3", left[1].job_id)).await;
    assert_eq!(events.at("/items/0/trace_id"), "t-9", "{}", events.text);
    assert_eq!(events.at("/items/0/actor"), "worker:w1");
    page.finish();
}

async fn release(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "release", "A worker gives back what it claimed.");
    let path = "/api/v1/leases/release";
    let leases = claimed(&server, "post", 2, "").await;
    server.post("/api/v1/leases/start", &about(&[leases[1].with("")])).await.ok();
    let entries = [leases[0].with(""), leases[1].with("")];
    page.post("One that has not started, and one that has.", path, &about(&entries)).await;
    page.post("Once more.", path, &about(&entries)).await;
    page.post("No leases.", path, "{}").await;
    page.finish();
}

async fn wait(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "wait", "A worker parks what it runs until a time.");
    let path = "/api/v1/leases/wait";
    let leases = claimed(&server, "post", 2, r#","start":true"#).await;
    let left = claimed(&server, "left", 1, "").await;
    let cancel = format!("/api/v1/jobs/{}/cancel", leases[1].job_id);
    server.post(&cancel, "").await.ok();
    let until = r#""until": "2126-01-02T03:04:05Z""#;
    let entries = [
        leases[0].with(until),
        leases[0].with(until),
        leases[1].with(until),
        left[0].with(until),
        Lease { epoch: "1".to_owned(), job_id: NOBODY.to_owned() }.with(until),
        leases[0].with(""),
    ];
    let about_it = "One that runs, once more, one that is to be cancelled, one that has not started, one that is not \
                    there, and one without a time.";
    page.post(about_it, path, &about(&entries)).await;
    page.get("It holds no lease.", &format!("/api/v1/jobs/{}/why", leases[0].job_id)).await;
    page.post("No leases.", path, "{}").await;
    page.get("The bell has no parameters.", "/api/v1/ready?queue=post").await;
    page.finish();
}

async fn a_duplicate_of_a_claim_whose_caller_hangs_up_takes_nothing_away(store: Store) {
    let server = Server::start(&store);
    for round in 0..40 {
        let more = format!(r#","claim_id":"c{round}""#);
        let lease = claimed(&server, "post", 1, &more).await.remove(0);
        let body = format!(r#"{{"worker_id":"w1","queues":["post"],"max":1{more}}}"#);
        let request = format!(
            "POST {CLAIMS} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            server.address(),
            body.len()
        );
        let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        // From here on to after its answer.
        tokio::time::sleep(Duration::from_micros(100 * round)).await;
        drop(stream);
        tokio::time::sleep(Duration::from_millis(20)).await;
        let path = format!("/api/v1/jobs/{}", lease.job_id);
        let job = server.get(&path).await.ok();
        assert_eq!(job.at("/state"), "dispatched", "round {round}");
        assert_eq!(job.at("/epoch"), lease.epoch, "round {round}");
    }
    drop(server);
    store.check();
}

/// It rings for those who listen, and ends with the server.
async fn a_bell_rings_for_a_new_job(store: Store) {
    let server = Server::start(&store);
    let mut bell =
        crate::client::client().get(server.url("/api/v1/ready")).send().await.expect("it answers");
    assert_eq!(bell.headers()["content-type"], "text/event-stream");
    make(&server, "{}").await;
    let mut heard = String::new();
    while !heard.contains("data: ready\n\n") {
        let bytes = bell.chunk().await.expect("it goes on").expect("it has not ended");
        heard.push_str(std::str::from_utf8(&bytes).expect("it is text"));
    }
    assert!(server.stop().success());
    while bell.chunk().await.is_ok_and(|bytes| bytes.is_some()) {}
}

/// It is answered when there is a job, and not when its time is over.
async fn a_long_poll_hears_of_a_new_job(store: Store) {
    let server = Server::start(&store);
    let body =
        r#"{"worker_id":"w1","wait_ms":30000,"claim_id":"claim_00000000000000000000000003"}"#;
    let claim = async { server.post(CLAIMS, body).await.ok() };
    let enqueue = async {
        // Long enough for the claim to find nothing first. If it is not, the test only shows less.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        make(&server, "{}").await
    };
    let (claimed, made) = tokio::join!(claim, enqueue);
    assert_eq!(claimed.at("/leases/0/job/job_id"), made);
    // If its answer is lost, the same call again gets the same lease.
    let again = server.post(CLAIMS, body).await.ok();
    assert_eq!(again.at("/leases/0/job/job_id"), made);
    assert_eq!(again.at("/leases/0/epoch"), claimed.at("/leases/0/epoch"));
}

/// Nobody waits for it any more: what it took would be held for nobody. It is answered at once, though it would wait.
async fn a_duplicate_of_a_claim_that_comes_late_gets_nothing(store: Store) {
    let mut server = Server::start(&store);
    let body = r#"{"worker_id":"w1","start":true,"wait_ms":30000,"claim_id":"seven"}"#;
    make(&server, "{}").await;
    let claimed = server.post(CLAIMS, body).await.ok();
    assert!(claimed.json().get("repeated").is_none(), "{}", claimed.text);
    let lease =
        Lease { job_id: claimed.at("/leases/0/job/job_id"), epoch: claimed.at("/leases/0/epoch") };
    let next = make(&server, "{}").await;
    let again = server.post(CLAIMS, body).await.ok();
    assert_eq!(again.at("/leases/0/job/job_id"), lease.job_id);
    assert_eq!(again.at("/repeated"), "true");
    let done = about(&[lease.with(r#""outcome": "succeeded""#)]);
    server.post("/api/v1/leases/settle", &done).await.ok();
    for restarts in [false, true] {
        if restarts {
            server.kill();
            server = Server::start(&store);
        }
        let sent_at = std::time::Instant::now();
        let late = server.post(CLAIMS, body).await.ok();
        assert_eq!(late.json(), serde_json::json!({ "leases": [], "repeated": true }));
        assert!(sent_at.elapsed() < std::time::Duration::from_secs(20), "it waited");
    }
    let other = r#"{"worker_id":"w1","start":true,"claim_id":"eight"}"#;
    assert_eq!(server.post(CLAIMS, other).await.ok().at("/leases/0/job/job_id"), next);
}

/// Many jobs fail in one call, as after an outage. Each is spread by itself.
async fn what_failed_together_does_not_come_back_together(store: Store) {
    let server = Server::start(&store);
    let leases = claimed(&server, "spread", 50, r#", "start": true"#).await;
    let failed = r#""outcome": "failed", "error": {"code": "AWAY", "retryable": true}"#;
    let entries: Vec<String> = leases.iter().map(|lease| lease.with(failed)).collect();
    server.post("/api/v1/leases/settle", &about(&entries)).await.ok();
    let jobs = server.get("/api/v1/jobs?queue=spread&limit=50").await.ok().json();
    let times = jobs["items"].as_array().expect("a list").iter().map(|job| {
        assert_eq!(job["state"], "retry_scheduled");
        job["next_retry_at"].as_str().expect("a time").to_owned()
    });
    let times: std::collections::BTreeSet<String> = times.collect();
    // Of 301 values that are equally likely, 50 jobs get about 46 different ones.
    assert!(times.len() > 25, "{} different times: {times:?}", times.len());
}
