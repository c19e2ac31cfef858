//! Bounds: what one caller may ask for, keep and hold open, so that others are served.

use std::time::Duration;

use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
};

use crate::{
    client::{Answer, client, send},
    on_both_stores,
    server::{Server, Store, block_on},
};

on_both_stores!(
    a_claim_that_names_too_much_is_refused_with_what_to_do,
    workers_are_listed_page_by_page,
    a_bell_does_not_tell_what_another_tenant_does,
    a_job_of_its_own_wakes_who_waits_beside_a_busy_tenant,
    schedules_are_listed_within_a_bound_of_bytes,
    a_claim_brings_no_more_bytes_than_are_stated,
    attempts_are_listed_within_a_bound_of_bytes,
    operations_are_listed_within_a_bound_of_bytes,
);

async fn call(
    server: &Server,
    method: Method,
    path: &str,
    token: &str,
    body: &serde_json::Value,
) -> Answer {
    let request = client().request(method, server.url(path)).bearer_auth(token);
    let request = request.header("content-type", "application/json").body(body.to_string());
    send(request).await.expect("it answers")
}

async fn a_claim_that_names_too_much_is_refused_with_what_to_do(store: Store) {
    let server = Server::start(&store);
    for field in ["queues", "kinds"] {
        let names: Vec<String> = (0..1_001).map(|number| format!("n{number}")).collect();
        let body = json!({ "worker_id": "w", field: names });
        let refused = server.post("/api/v1/claims", &body.to_string()).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
        let detail = refused.at("/detail");
        assert!(detail.contains(field) && detail.contains("several workers"), "{detail}");
        let body = json!({ "worker_id": "w", field: &names[..1_000] });
        server.post("/api/v1/claims", &body.to_string()).await.ok();
    }
}

async fn workers_are_listed_page_by_page(store: Store) {
    let server = Server::start(&store);
    for number in 0..25 {
        let body = json!({ "worker_id": format!("w{number:02}"), "queues": ["q"] });
        server.post("/api/v1/claims", &body.to_string()).await.ok();
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/api/v1/workers?limit=10&cursor={cursor}")).await.ok();
        let page = page.json();
        let items = page["items"].as_array().expect("a list");
        assert!(items.len() <= 10);
        let names = items.iter().map(|it| it["worker_id"].as_str().expect("a name").to_owned());
        // The server has a worker of its own.
        seen.extend(names.filter(|name| !name.starts_with("windlass.")));
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    let expected: Vec<String> = (0..25).map(|number| format!("w{number:02}")).collect();
    assert_eq!(seen, expected);
}

/// How often the bell rings within this time.
async fn rings(bell: &mut reqwest::Response, within: Duration) -> usize {
    let until = tokio::time::Instant::now() + within;
    let mut count = 0;
    while let Ok(chunk) = tokio::time::timeout_at(until, bell.chunk()).await {
        let chunk = chunk.expect("it goes on").expect("it goes on");
        count += chunk.windows(5).filter(|part| part == b"data:").count();
    }
    count
}

async fn a_bell_does_not_tell_what_another_tenant_does(store: Store) {
    let [a, b] = ["a", "b"].map(|tenant| store.token("w", "worker", tenant));
    let server = Server::start_guarded(&store);
    // It has a job that is ready and that nobody takes.
    call(&server, Method::POST, "/api/v1/jobs", &a, &json!({})).await.ok();
    let bell = client().get(server.url("/api/v1/ready")).bearer_auth(&a).send().await;
    let mut bell = bell.expect("it answers");
    rings(&mut bell, Duration::from_secs(2)).await;
    let others = async {
        for _ in 0..60 {
            call(&server, Method::POST, "/api/v1/jobs", &b, &json!({})).await.ok();
        }
    };
    // It is rung for once a second as long as the job is ready, whatever others do.
    let ((), heard) = tokio::join!(others, rings(&mut bell, Duration::from_secs(3)));
    assert!(heard <= 5, "it rang {heard} times");
    call(&server, Method::POST, "/api/v1/jobs", &a, &json!({})).await.ok();
    assert!(rings(&mut bell, Duration::from_secs(3)).await > 0, "it rings for its own");
}

async fn a_job_of_its_own_wakes_who_waits_beside_a_busy_tenant(store: Store) {
    let [a, b] = ["a", "b"].map(|tenant| store.token("w", "worker", tenant));
    let server = Server::start_guarded(&store);
    let wait = json!({ "worker_id": "w", "queues": ["q"], "wait_ms": 20_000 });
    let waiting = call(&server, Method::POST, "/api/v1/claims", &a, &wait);
    let enqueue = async {
        for _ in 0..20 {
            call(&server, Method::POST, "/api/v1/jobs", &b, &json!({ "queue": "q" })).await.ok();
        }
        call(&server, Method::POST, "/api/v1/jobs", &a, &json!({ "queue": "q" })).await.ok();
    };
    let (claimed, ()) = tokio::join!(waiting, enqueue);
    assert_eq!(claimed.ok().at("/leases/0/job/tenant"), "a");
}

async fn schedules_are_listed_within_a_bound_of_bytes(store: Store) {
    let server = Server::start(&store);
    for number in 0..8 {
        let payload = "x".repeat(1_000_000);
        let body = json!({ "name": format!("s{number}"), "cron": "0 0 1 1 *", "job": { "payload": payload } });
        server.post("/api/v1/schedules", &body.to_string()).await.ok();
    }
    let (mut seen, mut cursor, mut pages) = (0, String::new(), 0);
    loop {
        let page = server.get(&format!("/api/v1/schedules?limit=1000&cursor={cursor}")).await.ok();
        assert!(page.text.len() < 6_000_000, "{} bytes", page.text.len());
        let page = page.json();
        seen += page["items"].as_array().expect("a list").len();
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((seen, pages), (8, 2));
}

async fn a_claim_brings_no_more_bytes_than_are_stated(store: Store) {
    let server = Server::start(&store);
    let body = json!({ "queue": "large", "payload": "x".repeat(1_000_000) }).to_string();
    let mut jobs = Vec::new();
    for _ in 0..12 {
        jobs.push(server.post("/api/v1/jobs", &body).await.ok().at("/job/job_id"));
    }
    let claim = json!({ "worker_id": "w", "queues": ["large"], "max": 1_000, "start": true });
    let claim = async || server.post("/api/v1/claims", &claim.to_string()).await.ok();
    let ids = |answer: &Answer| -> Vec<String> {
        let leases = answer.json()["leases"].as_array().expect("a list").clone();
        leases.iter().map(|it| it["job"]["job_id"].as_str().expect("an id").to_owned()).collect()
    };
    let first = claim().await;
    assert!(first.text.len() < 9_000_000, "{} bytes", first.text.len());
    assert_eq!(ids(&first), jobs[..8]);
    assert!(first.json()["again_at"].is_string(), "it is told that there is more");
    // What did not fit was not claimed, so it lost nothing.
    let left = server.get(&format!("/api/v1/jobs/{}", jobs[8])).await.ok().json();
    let counts = ["epoch", "lease_count", "interruptions"].map(|name| left[name].clone());
    assert_eq!((&left["state"], counts), (&json!("queued"), [0, 0, 0].map(|it| json!(it))));
    let second = claim().await;
    assert_eq!(ids(&second), jobs[8..]);
    assert!(second.json()["again_at"].is_null(), "there is no more");
}

async fn attempts_are_listed_within_a_bound_of_bytes(store: Store) {
    let server = Server::start(&store);
    let retry = json!({ "base_ms": 1, "max_backoff_ms": 1 });
    let job = json!({ "queue": "q", "max_retries": 100, "retry": retry }).to_string();
    let id = server.post("/api/v1/jobs", &job).await.ok().at("/job/job_id");
    let claim = json!({ "worker_id": "w", "queues": ["q"], "start": true, "wait_ms": 30_000 });
    for attempt in 1..=6 {
        let claimed = server.post("/api/v1/claims", &claim.to_string()).await.ok();
        let entry = json!({
            "job_id": id, "epoch": claimed.json()["leases"][0]["epoch"], "outcome": "failed",
            "error": { "code": "NO", "retryable": true }, "stats": "x".repeat(1_000_000)
        });
        let settle = json!({ "worker_id": "w", "leases": [entry] }).to_string();
        let settled = server.post("/api/v1/leases/settle", &settle).await.ok();
        assert_eq!(settled.at("/results/0/state"), "retry_scheduled", "attempt {attempt}");
    }
    let (mut seen, mut cursor, mut pages) = (0, "0".to_owned(), 0);
    loop {
        let path = format!("/api/v1/jobs/{id}/attempts?limit=1000&cursor={cursor}");
        let page = server.get(&path).await.ok();
        assert!(page.text.len() < 6_000_000, "{} bytes", page.text.len());
        let page = page.json();
        seen += page["items"].as_array().expect("a list").len();
        pages += 1;
        match page["next"].as_str() {
            Some(next) => cursor = next.to_owned(),
            None => break,
        }
    }
    assert_eq!((seen, pages), (6, 2));
}

/// What was asked for is bounded when it is asked, so a whole page of it is.
async fn operations_are_listed_within_a_bound_of_bytes(store: Store) {
    const EACH_MAX: usize = 40 * 1024;
    let server = Server::start(&store);
    let asked = |reason: usize, code: usize| {
        let filter = json!({ "queue": "none", "code": "c".repeat(code) });
        json!({ "act": "cancel", "filter": filter, "reason": "r".repeat(reason) }).to_string()
    };
    for body in [asked(4_097, 1), asked(1, 257)] {
        let refused = server.post("/api/v1/operations", &body).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    }
    for _ in 0..20 {
        server.post("/api/v1/operations", &asked(4_096, 256)).await.ok();
    }
    let page = server.get("/api/v1/operations?limit=1000").await.ok();
    assert_eq!(page.json()["items"].as_array().map(Vec::len), Some(20));
    assert!(page.text.len() < 20 * EACH_MAX, "{} bytes", page.text.len());
}

/// Asks for this, and takes nothing of the answer but its first byte.
async fn ask_and_not_read(server: &Server, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("it can be small");
    let address = server.address().parse().expect("an address");
    let mut stream = socket.connect(address).await.expect("it listens");
    let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    assert_eq!(stream.peek(&mut [0]).await.expect("it answers"), 1);
    stream
}

/// There is a place for one connection. Whoever holds it and does not read loses it, and not before that.
async fn a_place_is_free_again(store: &Store, path: &str) {
    let server = Server::start_with_config(store, "[server]\nconnections_max = 1\n");
    let stuck = ask_and_not_read(&server, path).await;
    // A client whose new connection is cut off may wait for ever: with its time-out it does not.
    let probe =
        async || send(client().get(server.url("/healthz")).timeout(Duration::from_secs(10))).await;
    assert!(probe().await.is_err(), "{path}: the place is not taken");
    let began = std::time::Instant::now();
    while probe().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(120), "{path}: who does not read stays");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    assert!(began.elapsed() > Duration::from_secs(15), "{path}: who reads slowly is cut off");
    drop(stuck);
}

#[test]
fn who_does_not_read_is_cut_off() {
    block_on(async {
        let [answers, events] = [Store::sqlite(), Store::sqlite()];
        let server = Server::start(&answers);
        for number in 0..5 {
            let payload = "x".repeat(1_000_000);
            let body = json!({ "name": format!("s{number}"), "cron": "0 0 1 1 *", "job": { "payload": payload } });
            server.post("/api/v1/schedules", &body.to_string()).await.ok();
        }
        server.stop();
        let server = Server::start(&events);
        let jobs = json!({ "jobs": vec![json!({ "tags": ["t".repeat(60)] }); 1_000] }).to_string();
        // More than the kernel holds for a connection: as long as all fits there, nobody waits for the reader.
        for _ in 0..30 {
            server.post("/api/v1/jobs/batch", &jobs).await.ok();
        }
        server.stop();
        tokio::join!(
            a_place_is_free_again(&answers, "/api/v1/schedules?limit=1000"),
            a_place_is_free_again(&events, "/api/v1/events/stream"),
        );
    });
}

/// Begins a request whose body is longer than what is sent of it, and holds the connection.
async fn begin(server: &Server, token: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
    let head = format!(
        "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n "
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    stream
}

/// One tenant holds as many bytes as it may. Then it has to wait, and another has not.
#[test]
fn bodies_share_a_budget_of_bytes_of_which_a_tenant_has_its_part() {
    block_on(async {
        let store = Store::sqlite();
        let [a, b] = ["a", "b"].map(|tenant| store.token("w", "worker", tenant));
        let config = "[server]\nmemory_bytes_max = 8000000\n";
        let server = Server::start_guarded_with(&store, config);
        let held = begin(&server, &a, 1_500_000).await;
        let body = json!({ "payload": "x".repeat(900_000) });
        let post =
            async |token: &str| call(&server, Method::POST, "/api/v1/jobs", token, &body).await;
        // The server reads the first when it gets to it.
        let mut refused = post(&a).await;
        for _ in 0..100 {
            if refused.status == StatusCode::SERVICE_UNAVAILABLE {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            refused = post(&a).await;
        }
        assert_eq!(refused.at("/code"), "OVERLOADED", "{}", refused.text);
        assert_eq!(refused.headers["retry-after"], "1");
        assert_eq!(post(&b).await.status, StatusCode::CREATED, "another tenant has its own part");
        drop(held);
        let mut taken = post(&a).await;
        for _ in 0..100 {
            if taken.status == StatusCode::CREATED {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            taken = post(&a).await;
        }
        assert_eq!(taken.status, StatusCode::CREATED, "what was given up is free again");
    });
}

/// Connections that bring no token and say nothing, over HTTP/2, do not keep others out.
#[test]
fn idle_connections_give_way() {
    const HTTP2: &str = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\u{4}\0\0\0\0\0";
    block_on(async {
        let store = Store::sqlite();
        let token = store.token("w", "worker", "a");
        let config = "[server]\nconnections_max = 20\n";
        let server = Server::start_guarded_with(&store, config);
        let mut held = Vec::new();
        for _ in 0..60 {
            let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
            stream.write_all(HTTP2.as_bytes()).await.expect("it reads");
            held.push(stream);
        }
        for _ in 0..5 {
            assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
            call(&server, Method::POST, "/api/v1/jobs", &token, &json!({})).await.ok();
        }
        drop(held);
    });
}
