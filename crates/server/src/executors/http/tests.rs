//! Calls to real sockets on this machine, and to all that must not be reached.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use windlass::{Ended, Engine, JobRequest, State, Worker};

use super::*;
use crate::executors::guard::{Allowed, Guard, Lookup};

/// Nobody is there, and no test is given this port, as one that was free a moment ago would be.
const GONE: &str = "http://127.0.0.1:1/";

/// A server that answers each request with the text that it is given for its path.
struct Server {
    address: SocketAddr,
    /// The requests, as they came.
    seen: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(answer: impl Fn(&str, usize) -> String + Send + Sync + 'static) -> Self {
        Self::at(Ipv4Addr::LOCALHOST, answer).await
    }

    async fn at(
        ip: Ipv4Addr,
        answer: impl Fn(&str, usize) -> String + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((ip, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (told, answer) = (seen.clone(), Arc::new(answer));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer_one(stream, told.clone(), answer.clone()));
            }
        });
        Self { address, seen }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

async fn answer_one(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<String>>>,
    answer: Arc<impl Fn(&str, usize) -> String>,
) {
    let mut request = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        if count == 0 {
            return;
        }
        request.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() < length.map_or(0, |length| length.parse().unwrap()) {
            continue;
        }
        let path = text.split(' ').nth(1).unwrap().to_owned();
        let before = {
            let mut seen = seen.lock().unwrap();
            seen.push(text);
            seen.len() - 1
        };
        let answered = answer(&path, before);
        let _ = stream.write_all(answered.as_bytes()).await;
        let _ = stream.shutdown().await;
        return;
    }
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn executor(allow: &[&str]) -> HttpExecutor {
    let allow = allow.iter().map(|text| Allowed::parse(text).unwrap()).collect();
    HttpExecutor { allow, timeout: Duration::from_secs(10), ..HttpExecutor::default() }
}

/// An engine whose worker runs this executor.
async fn work(config: HttpExecutor, lookup: Option<Lookup>) -> (Engine, Worker) {
    let guard = match lookup {
        Some(lookup) => Guard::with_lookup(&config.allow, lookup),
        None => Guard::new(&config.allow),
    };
    let outward = Outward::new(guard, config.follow_redirects).unwrap();
    let engine = Engine::open("sqlite::memory:").await.unwrap();
    let state = Arc::new(Http { outward, config });
    let worker = engine.worker().state(state).handle_kind(KIND, run).start().await.unwrap();
    (engine, worker)
}

async fn call(engine: &Engine, payload: Value) -> Ended {
    let job = JobRequest::of(KIND, &payload).max_retries(0);
    let id = engine.enqueue(job).await.unwrap().id;
    engine.wait(id).await.unwrap()
}

fn result(ended: &Ended) -> Value {
    ended.result().unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

fn failure(ended: &Ended) -> Failure {
    ended.job.error.clone().unwrap_or_else(|| panic!("it did not fail: {ended:?}"))
}

#[tokio::test]
async fn a_call_says_which_job_it_is_and_its_answer_is_the_result() {
    let body = r#"{"id": 12345678901234567890123, "x": 1.10}"#;
    let headers = "content-type: application/json\r\nx-request-id: r1\r\nset-cookie: secret\r\n";
    let server = Server::start(move |_, _| answer("201 Created", headers, body)).await;
    let (engine, _worker) = work(executor(&["127.0.0.1"]), None).await;
    let payload = r#"{"url": "URL", "headers": {"authorization": "Bearer s3cret"}, "body": {"n": 9007199254740993}}"#;
    let payload = payload.replace("URL", &server.url("/orders?token=t"));
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let id = engine.enqueue(JobRequest::raw(KIND, &payload).trace(trace)).await.unwrap().id;
    let ended = engine.wait(id).await.unwrap();
    assert_eq!(ended.job.state, State::Succeeded);
    let kept: Box<RawValue> = ended.result().unwrap();
    assert!(kept.get().contains(body), "{kept}");
    let kept: Value = serde_json::from_str(kept.get()).unwrap();
    assert_eq!(kept["status"], 201);
    assert_eq!(kept["headers"], json!({"content-type": "application/json", "x-request-id": "r1"}));
    let seen = server.seen.lock().unwrap()[0].clone();
    for line in [
        "POST /orders?token=t HTTP/1.1\r\n".to_owned(),
        "content-type: application/json\r\n".to_owned(),
        "authorization: Bearer s3cret\r\n".to_owned(),
        format!("idempotency-key: {id}+0\r\n"),
        format!("x-windlass-job-id: {id}\r\n"),
        "x-windlass-attempt: 1\r\n".to_owned(),
        format!("x-trace-id: {trace}\r\n"),
        format!("traceparent: 00-{trace}-"),
    ] {
        assert!(seen.contains(&line), "{line:?} is not in {seen}");
    }
    assert!(seen.ends_with(r#"{"n": 9007199254740993}"#), "{seen}");
}

#[tokio::test]
async fn a_status_says_whether_trying_again_may_help() {
    let server = Server::start(|path, _| {
        let status = path.trim_start_matches('/');
        answer(&format!("{status} Said"), "retry-after: 7\r\n", "no")
    })
    .await;
    let (engine, _worker) = work(executor(&["127.0.0.0/8"]), None).await;
    for status in [200, 204, 299] {
        let ended = call(&engine, json!({ "url": server.url(&format!("/{status}")) })).await;
        assert_eq!(ended.job.state, State::Succeeded, "{status}");
    }
    for status in [408, 425, 429, 500, 502, 503, 504, 599] {
        let ended = call(&engine, json!({ "url": server.url(&format!("/{status}")) })).await;
        let failure = failure(&ended);
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            (HTTP_UNAVAILABLE, true),
            "{status}"
        );
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)), "{status}");
    }
    for status in [301, 302, 304, 400, 401, 403, 404, 409, 410, 422, 451] {
        let ended = call(&engine, json!({ "url": server.url(&format!("/{status}")) })).await;
        let failure = failure(&ended);
        assert_eq!((failure.code.as_str(), failure.retryable), (HTTP_REJECTED, false), "{status}");
    }
    let expected = json!({ "url": server.url("/404"), "expect_status": [200, 404] });
    assert_eq!(call(&engine, expected).await.job.state, State::Succeeded);
    let unexpected = json!({ "url": server.url("/200"), "expect_status": 201 });
    assert_eq!(failure(&call(&engine, unexpected).await).code, HTTP_REJECTED);
}

#[tokio::test]
async fn a_failure_tells_no_secret() {
    let headers = "content-type: text/plain\r\n";
    let server = Server::start(move |_, _| answer("401 No", headers, "s3cret")).await;
    let (engine, _worker) = work(executor(&["127.0.0.1"]), None).await;
    for url in [server.url("/s3cret?key=s3cret"), format!("{GONE}s3cret?key=s3cret")] {
        let payload =
            json!({ "url": url, "headers": {"authorization": "s3cret"}, "body": "s3cret" });
        let failure = failure(&call(&engine, payload).await);
        assert!(!failure.message.contains("s3cret"), "{}", failure.message);
        assert!(failure.message.contains("http://127.0.0.1:"), "{}", failure.message);
    }
    let bad = json!({ "url": server.url("/"), "headers": {"x-key": "s3cret\n"} });
    let failure = failure(&call(&engine, bad).await);
    assert_eq!(failure.code, PAYLOAD_UNFIT);
    assert!(!failure.message.contains("s3cret"), "{}", failure.message);
}

#[tokio::test]
async fn what_does_not_answer_is_tried_again() {
    let (engine, _worker) = work(executor(&["127.0.0.1"]), None).await;
    let refused = failure(&call(&engine, json!({ "url": GONE })).await);
    assert_eq!((refused.code.as_str(), refused.retryable), ("HTTP_UNREACHABLE", true));
    // It takes the connection and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let began = Instant::now();
    let late = failure(&call(&engine, json!({ "url": url, "timeout_ms": 200 })).await);
    assert_eq!((late.code.as_str(), late.retryable), ("HTTP_TIMEOUT", true));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    // One that breaks off in the middle of its answer.
    let half =
        Server::start(|_, _| "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".into()).await;
    let broken = failure(&call(&engine, json!({ "url": half.url("/") })).await);
    assert_eq!((broken.code.as_str(), broken.retryable), ("HTTP_UNREACHABLE", true));
}

#[tokio::test]
async fn an_answer_is_read_as_far_as_it_is_kept() {
    // It never ends.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        while stream.write_all(&[b'7'; 4_096]).await.is_ok() {
            count.fetch_add(4_096, Ordering::Relaxed);
        }
    });
    let config = HttpExecutor { response_bytes_max: 10_000, ..executor(&["127.0.0.1"]) };
    let (engine, _worker) = work(config, None).await;
    let kept = result(&call(&engine, json!({ "url": url })).await);
    assert_eq!(kept["truncated"], true);
    assert_eq!(kept["body"], "7".repeat(10_000));
    assert!(sent.load(Ordering::Relaxed) < 50_000_000);
}

#[tokio::test]
async fn the_longest_answer_of_the_worst_bytes_can_be_kept() {
    let server = Server::start(|_, _| answer("200 OK", "", &"\u{1}".repeat(200_000))).await;
    let config = HttpExecutor { response_bytes_max: 163_840, ..executor(&["127.0.0.1"]) };
    let (engine, _worker) = work(config, None).await;
    let kept = result(&call(&engine, json!({ "url": server.url("/") })).await);
    assert_eq!(kept["body"].as_str().unwrap().len(), 163_840);
}

#[tokio::test]
async fn what_belongs_to_the_connection_cannot_be_set() {
    let (engine, _worker) = work(executor(&["127.0.0.1"]), None).await;
    for name in ["Host", "content-length", "Transfer-Encoding", "connection", "bad name", "é"] {
        let payload =
            json!({ "url": "http://127.0.0.1:9/", "headers": BTreeMap::from([(name, "x")]) });
        assert_eq!(failure(&call(&engine, payload).await).code, PAYLOAD_UNFIT, "{name}");
    }
    for payload in [
        json!({ "url": "http://127.0.0.1:9/", "method": "CONNECT" }),
        json!({ "url": "http://127.0.0.1:9/", "method": "GET / HTTP/1.1\r\n" }),
        json!({ "url": "http://127.0.0.1:9/", "timeout_ms": 0 }),
        json!({ "url": "http://127.0.0.1:9/", "unknown": 0 }),
        json!({ "url": "no url" }),
        json!({}),
    ] {
        assert_eq!(failure(&call(&engine, payload.clone()).await).code, PAYLOAD_UNFIT, "{payload}");
    }
}

/// Every way to write an address that must not be reached. `PORT` is that of a server which would hear of it.
const FORBIDDEN: &[&str] = &[
    // Loopback, as it is and in disguise.
    "http://127.0.0.1:PORT/",
    "http://127.0.0.1.:PORT/",
    "http://127.1:PORT/",
    "http://127.0.1:PORT/",
    "http://2130706433:PORT/",
    "http://017700000001:PORT/",
    "http://0x7f000001:PORT/",
    "http://0x7f.0x0.0x0.0x1:PORT/",
    "http://0177.0.0.1:PORT/",
    "http://0177.0.0.01:PORT/",
    "http://0x7f.1:PORT/",
    "http://127.0.0.0x1:PORT/",
    "http://127.255.255.254:PORT/",
    "http://127.0.0.2:PORT/",
    "http://%31%32%37.0.0.1:PORT/",
    "http://127。0。0。1:PORT/",
    "http://①②⑦.⓪.⓪.①:PORT/",
    "http://１２７.0.0.1:PORT/",
    "HTTP://127.0.0.1:PORT/",
    "http:\\\\127.0.0.1:PORT\\",
    "http:/127.0.0.1:PORT/",
    "http:127.0.0.1:PORT/",
    "http://127.0.0.1:PORT\t/",
    " http://127.0.0.1:PORT/ ",
    "http://127.0.0.1:PORT#@example.com/",
    "http://127.0.0.1:PORT?@example.com/",
    "http://localhost:PORT/",
    "http://LOCALHOST:PORT/",
    "http://localhost.:PORT/",
    "http://any.localhost:PORT/",
    "http://ⓛocalhost:PORT/",
    "http://lo\u{ad}calhost:PORT/",
    "http://[::1]:PORT/",
    "http://[0:0:0:0:0:0:0:1]:PORT/",
    "http://[0000:0000::0001]:PORT/",
    "http://[::0.0.0.1]:PORT/",
    "http://[::ffff:127.0.0.1]:PORT/",
    "http://[::ffff:7f00:1]:PORT/",
    "http://[::FFFF:7F00:0001]:PORT/",
    "http://[0:0:0:0:0:ffff:127.0.0.1]:PORT/",
    "http://[::127.0.0.1]:PORT/",
    "http://[::7f00:1]:PORT/",
    "http://[::ffff:0:127.0.0.1]:PORT/",
    "http://[64:ff9b::127.0.0.1]:PORT/",
    "http://[64:ff9b::7f00:1]:PORT/",
    "http://[64:ff9b:1::127.0.0.1]:PORT/",
    "http://[2002:7f00:1::]:PORT/",
    "http://[2002:7f00:0001::1]:PORT/",
    // Nowhere, which is here.
    "http://0.0.0.0:PORT/",
    "http://0:PORT/",
    "http://00:PORT/",
    "http://0x0:PORT/",
    "http://0.1.2.3:PORT/",
    "http://[::]:PORT/",
    "http://[::ffff:0.0.0.0]:PORT/",
    // Private networks.
    "http://10.0.0.1/",
    "http://10.255.255.255/",
    "http://167772161/",
    "http://0xa000001/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://3232235521/",
    "http://[::ffff:10.0.0.1]/",
    "http://[::ffff:c0a8:1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b::c0a8:1]/",
    "http://[2002:a00:1::]/",
    "http://[2002:c0a8:1::1]/",
    "http://[fc00::1]/",
    "http://[fd12:3456:789a::1]/",
    "http://[fec0::1]/",
    // What is next to this machine, and what clouds tell it there.
    "http://169.254.1.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://0251.0376.0251.0376/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::]/",
    "http://[fe80::1]/",
    "http://[febf::1]/",
    "http://[fd00:ec2::254]/",
    "http://[fd20:ce::254]/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://192.0.0.192/",
    // What a provider shares out, what many hear, and what is kept for later.
    "http://100.64.0.1/",
    "http://100.127.255.255/",
    "http://224.0.0.1/",
    "http://239.255.255.255/",
    "http://[ff02::1]/",
    "http://255.255.255.255/",
    "http://240.0.0.1/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.1/",
    "http://203.0.113.1/",
    "http://192.88.99.1/",
    "http://[2001:db8::1]/",
    "http://[2001::1]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    "http://[4000::1]/",
    "http://[5f00::1]/",
    // Other ways than HTTP, and names in front of hosts.
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://127.0.0.1:PORT/_x",
    "unix:/var/run/docker.sock",
    "data:text/plain,x",
    "javascript:0",
    "ws://127.0.0.1:PORT/",
    "http://user@127.0.0.1:PORT/",
    "http://user:password@example.com/",
    "http://example.com@127.0.0.1:PORT/",
    "http://example.com:80@127.0.0.1:PORT/",
    "http://:x@example.com/",
];

#[tokio::test]
async fn nothing_that_is_not_public_is_reached_however_it_is_written() {
    let server = Server::start(|_, _| answer("200 OK", "", "reached")).await;
    let (engine, _worker) = work(executor(&[]), None).await;
    assert!(FORBIDDEN.len() >= 100);
    for url in FORBIDDEN {
        let url = url.replace("PORT", &server.address.port().to_string());
        let failure = failure(&call(&engine, json!({ "url": url })).await);
        let is_refused = failure.code == "ADDRESS_NOT_ALLOWED" || failure.code == PAYLOAD_UNFIT;
        assert!(is_refused && !failure.retryable, "{url}: {failure:?}");
    }
    assert_eq!(server.calls(), 0);
}

/// Answers with one list after the other, and with the last one from then on.
fn lookup(answers: &[&[&str]]) -> Lookup {
    let parse = |list: &&[&str]| list.iter().map(|it| it.parse().unwrap()).collect();
    let answers: Vec<Vec<IpAddr>> = answers.iter().map(parse).collect();
    let asked = AtomicUsize::new(0);
    Arc::new(move |_| {
        let turn = asked.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let found: io::Result<Vec<IpAddr>> = Ok(answers[turn].clone());
        Box::pin(async move { found })
    })
}

#[tokio::test]
async fn a_name_that_changes_its_mind_is_looked_at_each_time_and_reached_where_it_was_looked_at() {
    // As if 127.0.0.2 were public: first the name leads there, then to what is forbidden.
    let public =
        Server::at(Ipv4Addr::new(127, 0, 0, 2), |_, _| answer("200 OK", "", "public")).await;
    let port = public.address.port();
    let inner = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let answers: [&[&str]; 2] = [&["127.0.0.2"], &["127.0.0.1"]];
    let (engine, _worker) = work(executor(&["127.0.0.2"]), Some(lookup(&answers))).await;
    let url = json!({ "url": format!("http://rebind.example:{port}/") });
    assert_eq!(result(&call(&engine, url.clone()).await)["body"], "public");
    for _ in 0..3 {
        let failure = failure(&call(&engine, url.clone()).await);
        assert_eq!(failure.code, "ADDRESS_NOT_ALLOWED");
        assert!(!failure.message.contains("127.0.0.1"), "{}", failure.message);
    }
    let reached = tokio::time::timeout(Duration::from_millis(100), inner.accept()).await;
    assert!(reached.is_err(), "the forbidden address was reached");
    assert_eq!(public.calls(), 1);
}

#[tokio::test]
async fn of_many_addresses_only_those_that_are_allowed_are_tried() {
    let server = Server::at(Ipv4Addr::new(127, 0, 0, 3), |_, _| answer("200 OK", "", "")).await;
    let port = server.address.port();
    let inner = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let mixed: [&[&str]; 1] = [&["127.0.0.1", "::1", "10.0.0.1", "127.0.0.3", "::ffff:127.0.0.1"]];
    let (engine, _worker) = work(executor(&["127.0.0.3/32"]), Some(lookup(&mixed))).await;
    let url = json!({ "url": format!("http://mixed.example:{port}/") });
    assert_eq!(call(&engine, url).await.job.state, State::Succeeded);
    let reached = tokio::time::timeout(Duration::from_millis(100), inner.accept()).await;
    assert!(reached.is_err(), "the forbidden address was reached");
}

#[tokio::test]
async fn a_host_of_the_config_may_lead_anywhere() {
    let server = Server::start(|_, _| answer("200 OK", "", "")).await;
    let port = server.address.port();
    let loopback: [&[&str]; 1] = [&["127.0.0.1"]];
    let (engine, _worker) = work(executor(&["billing.internal"]), Some(lookup(&loopback))).await;
    for name in ["billing.internal", "BILLING.internal", "billing.internal."] {
        let url = json!({ "url": format!("http://{name}:{port}/") });
        assert_eq!(call(&engine, url).await.job.state, State::Succeeded, "{name}");
    }
    for name in ["other.internal", "x.billing.internal", "billing.internal.example", "127.0.0.1"] {
        let url = json!({ "url": format!("http://{name}:{port}/") });
        assert_eq!(failure(&call(&engine, url).await).code, "ADDRESS_NOT_ALLOWED", "{name}");
    }
}

#[tokio::test]
async fn a_redirect_is_followed_only_if_it_may_and_is_checked_like_any_call() {
    let inner = Server::start(|_, _| answer("200 OK", "", "inner")).await;
    let targets = [
        inner.url("/"),
        format!("http://localhost:{}/", inner.address.port()),
        format!("http://[::ffff:127.0.0.1]:{}/", inner.address.port()),
        format!("//127.0.0.1:{}/", inner.address.port()),
        "file:///etc/passwd".to_owned(),
        format!("http://u:p@127.0.0.1:{}/", inner.address.port()),
    ];
    let known = targets.clone();
    let outer = Server::at(Ipv4Addr::new(127, 0, 0, 4), move |path, _| {
        let turn = path.trim_start_matches('/');
        match turn.parse::<usize>() {
            Ok(turn) => answer("307 Go", &format!("location: {}\r\n", known[turn]), ""),
            Err(_) if turn == "loop" => answer("302 Go", "location: /loop\r\n", ""),
            Err(_) if turn == "once" => answer("302 Go", "location: /end\r\n", ""),
            Err(_) => answer("200 OK", "", "end"),
        }
    })
    .await;
    let config = HttpExecutor { follow_redirects: true, ..executor(&["127.0.0.4"]) };
    let (engine, _worker) = work(config, None).await;
    for (turn, target) in targets.iter().enumerate() {
        let url = outer.url(&format!("/{turn}"));
        let failure = failure(&call(&engine, json!({ "url": url })).await);
        assert_eq!(failure.code, "ADDRESS_NOT_ALLOWED", "{target}");
    }
    assert_eq!(inner.calls(), 0);
    let kept = result(&call(&engine, json!({ "url": outer.url("/once"), "body": {} })).await);
    assert_eq!(kept["body"], "end");
    assert!(outer.seen.lock().unwrap().last().unwrap().starts_with("GET /end "));
    let before = outer.calls();
    assert_eq!(
        failure(&call(&engine, json!({ "url": outer.url("/loop") })).await).code,
        HTTP_REJECTED
    );
    assert_eq!(outer.calls() - before, 4);
    let (engine, _worker) = work(executor(&["127.0.0.4"]), None).await;
    assert_eq!(
        failure(&call(&engine, json!({ "url": outer.url("/once") })).await).code,
        HTTP_REJECTED
    );
}

#[tokio::test]
async fn a_call_that_is_cancelled_is_broken_off() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let (engine, _worker) = work(executor(&["127.0.0.1"]), None).await;
    let id = engine.enqueue(JobRequest::of(KIND, &json!({ "url": url }))).await.unwrap().id;
    let (mut stream, _) = silent.accept().await.unwrap();
    engine.cancel(id).await.unwrap();
    assert_eq!(engine.wait(id).await.unwrap().job.state, State::Cancelled);
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    tokio::time::timeout(Duration::from_secs(2), read).await.expect("it is closed").unwrap();
}

#[test]
fn a_wait_is_so_many_seconds_or_until_a_time() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    let asked = |text: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        wait(&headers, now)
    };
    assert_eq!(asked("120"), Some(Duration::from_secs(120)));
    assert_eq!(asked("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)));
    assert_eq!(asked("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
    assert_eq!(asked("99999999999"), Some(RETRY_AFTER_MAX));
    assert_eq!((asked("-1"), asked("soon"), asked("")), (None, None, None));
}
