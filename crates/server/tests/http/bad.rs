//! Bad input over a real socket: each has its answer, and the server goes on.

use std::time::Duration;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use crate::{
    on_both_stores,
    server::{Server, Store, block_on},
};

on_both_stores!(bad_bodies, bad_heads, whoever_is_slow_is_cut_off, what_a_payload_holds_is_its_own);

/// What came back before the connection was closed.
struct Told {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Told {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        Self { status: status.unwrap_or(0), head, body }
    }

    /// The code of the problem document; none, if it is not one.
    fn code(&self) -> Option<String> {
        let document: Value = serde_json::from_slice(&self.body).ok()?;
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        assert_eq!(document["status"], self.status, "{document}");
        assert!(self.head.contains("x-trace-id: "), "{}", self.head);
        Some(document["code"].as_str()?.to_owned())
    }
}

/// Sends these bytes, and reads until the server closes the connection.
async fn tell(server: &Server, request: &[u8]) -> Told {
    let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
    // Whoever refuses a request early may close before it has read it to its end.
    let _ = stream.write_all(request).await;
    let mut bytes = Vec::new();
    let _ =
        timeout(Duration::from_secs(60), stream.read_to_end(&mut bytes)).await.expect("it ends");
    Told::parse(&bytes)
}

fn post(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn get(path: &str, headers: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n").into_bytes()
}

/// It is refused with this status and code, and the server goes on.
async fn check(server: &Server, about: &str, request: &[u8], status: u16, code: &str) {
    let told = tell(server, request).await;
    let found = told.code();
    assert_eq!((told.status, found.as_deref()), (status, Some(code)), "{about}: {}", told.head);
    assert_eq!(server.get("/healthz").await.status, 200, "after {about}");
}

const JSON: &str = "Content-Type: application/json\r\n";
const JOBS: &str = "/api/v1/jobs";

async fn bad_bodies(store: Store) {
    let server = &Server::start(&store);
    let deep = format!(r#"{{"payload": {}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let long = format!(r#"{{"payload": "{}"}}"#, "x".repeat(8 * 1024 * 1024));
    let wide = format!(r#"{{"tags": [{}"x"]}}"#, r#""x","#.repeat(100_000));
    let named = format!(r#"{{"kind": "{}"}}"#, "k".repeat(100_000));
    for (about, body, status, code) in [
        ("malformed JSON", &br#"{"kind": }"#[..], 400, "MALFORMED_REQUEST"),
        ("two documents", b"{} {}", 400, "MALFORMED_REQUEST"),
        ("a wrong type", br#"{"kind": 7}"#, 422, "INVALID_INPUT"),
        ("a list", br#"["mail"]"#, 422, "INVALID_INPUT"),
        ("text", br#""mail""#, 422, "INVALID_INPUT"),
        ("a member twice", br#"{"kind": "a", "kind": "b"}"#, 422, "INVALID_INPUT"),
        ("a number that is too large", br#"{"max_retries": 1e99}"#, 422, "INVALID_INPUT"),
        ("deep nesting", deep.as_bytes(), 400, "MALFORMED_REQUEST"),
        ("too many tags", wide.as_bytes(), 422, "INVALID_INPUT"),
        ("a name that is too long", named.as_bytes(), 422, "INVALID_INPUT"),
        ("an oversized body", long.as_bytes(), 413, "TOO_LARGE"),
        ("invalid UTF-8", b"{\"kind\": \"\xff\xfe\"}", 400, "MALFORMED_REQUEST"),
        ("NUL", b"{\"kind\": \"a\0b\"}", 400, "MALFORMED_REQUEST"),
        ("NUL that is escaped", br#"{"kind": "a\u0000b"}"#, 422, "INVALID_INPUT"),
    ] {
        check(server, about, &post(JOBS, JSON, body), status, code).await;
    }
    for (about, headers) in [
        ("a compressed body", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"),
        ("plain text", "Content-Type: text/plain\r\n"),
        ("a form", "Content-Type: application/x-www-form-urlencoded\r\n"),
        ("no type at all", ""),
    ] {
        check(server, about, &post(JOBS, headers, b"{}"), 415, "NOT_JSON").await;
    }
    let endless = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                   Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n";
    check(server, "a length beyond all bounds", endless.as_bytes(), 413, "TOO_LARGE").await;
    let made = server.get("/api/v1/jobs").await.ok().json();
    assert_eq!(made["items"], serde_json::json!([]), "nothing of all this made a job");
}

async fn bad_heads(store: Store) {
    let server = &Server::start(&store);
    let ours = "Host: localhost\r\n";
    let cases = [
        ("an unknown parameter", get("/api/v1/jobs?nothing=1", ours), 400, "MALFORMED_REQUEST"),
        ("a token in the URL", get("/api/v1/jobs?token=secret", ours), 400, "MALFORMED_REQUEST"),
        ("the same, otherwise", get("/api/v1/jobs?access_token=s", ours), 400, "MALFORMED_REQUEST"),
        ("a foreign host", get("/api/v1/jobs", "Host: evil.example\r\n"), 403, "FORBIDDEN"),
        (
            "one that looks like ours",
            get("/api/v1/jobs", "Host: localhost.evil\r\n"),
            403,
            "FORBIDDEN",
        ),
        ("a foreign address", get("/api/v1/jobs", "Host: 10.0.0.1:7117\r\n"), 403, "FORBIDDEN"),
        (
            "a page of another site",
            get("/api/v1/jobs", "Host: localhost\r\nOrigin: https://evil.example\r\n"),
            403,
            "FORBIDDEN",
        ),
        (
            "a page without a site",
            get("/api/v1/jobs", "Host: localhost\r\nOrigin: null\r\n"),
            403,
            "FORBIDDEN",
        ),
        (
            "a page from a file",
            get("/api/v1/jobs", "Host: localhost\r\nOrigin: file://\r\n"),
            403,
            "FORBIDDEN",
        ),
        (
            "a foreign host in the address",
            get("http://evil.example/api/v1/jobs", "Host: localhost\r\n"),
            403,
            "FORBIDDEN",
        ),
        ("a host of health checks", get("/healthz", "Host: evil.example\r\n"), 403, "FORBIDDEN"),
        ("a path that leads up", get("/api/v1/../../etc/passwd", ours), 404, "NO_ROUTE"),
        ("a path with nothing", get("//", ours), 404, "NO_ROUTE"),
        ("a path that is no text", get("/api/v1/jobs/%ff%fe", ours), 400, "MALFORMED_REQUEST"),
        (
            "another method",
            b"BREW /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".to_vec(),
            405,
            "METHOD_NOT_ALLOWED",
        ),
    ];
    for (about, request, status, code) in cases {
        check(server, about, &request, status, code).await;
    }
    let long = format!("{ours}X-Long: {}\r\n", "x".repeat(40 * 1024));
    check(server, "a header of 40 KiB", &get("/healthz", &long), 431, "HEAD_TOO_LARGE").await;
    let many = format!("{ours}{}", "X-Many: 1\r\n".repeat(150));
    check(server, "150 headers", &get("/healthz", &many), 431, "HEAD_TOO_LARGE").await;
    // What is sent in a header comes back in none but its own.
    let traced = format!("{ours}X-Trace-Id: a%0d%0aSet-Cookie: b\r\n");
    let told = tell(server, &get("/healthz", &traced)).await;
    assert!(told.status == 200 && !told.head.contains("\r\nset-cookie"), "{}", told.head);
    // These are refused before there is a request: they are twice too large, or no HTTP.
    let long = format!("{ours}X-Long: {}\r\n", "x".repeat(64 * 1024));
    let many = format!("{ours}{}", "X-Many: 1\r\n".repeat(200));
    for (about, request, status, code) in [
        ("a header of 64 KiB", get("/healthz", &long), 431, "HEAD_TOO_LARGE"),
        ("200 headers", get("/healthz", &many), 431, "HEAD_TOO_LARGE"),
        (
            "a header that is broken by CR",
            get("/healthz", &format!("{ours}X-Trace-Id: a\rb\r\n")),
            400,
            "MALFORMED_REQUEST",
        ),
        (
            "a header with NUL",
            get("/healthz", &format!("{ours}X-Trace-Id: a\0b\r\n")),
            400,
            "MALFORMED_REQUEST",
        ),
        (
            "two lengths",
            post(JOBS, &format!("{JSON}Content-Length: 7\r\n"), b"{}"),
            400,
            "MALFORMED_REQUEST",
        ),
        (
            "no HTTP at all",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(),
            400,
            "MALFORMED_REQUEST",
        ),
    ] {
        check(server, about, &request, status, code).await;
        assert_eq!(server.get("/healthz").await.status, 200, "after {about}");
    }
    let folded = get("/healthz", &format!("{ours}X-Trace-Id: a\r\n b\r\n"));
    assert!([400, 200].contains(&tell(server, &folded).await.status), "a header over two lines");
}

/// Nobody holds a connection for long without saying anything.
async fn whoever_is_slow_is_cut_off(store: Store) {
    // A head may take as long as usual, which is 10 seconds. A body usually has 30, which is long for a test.
    let server = Server::start_with_config(&store, "[server]\nbody_timeout_ms = 5000\n");
    let head = async {
        let mut stream = TcpStream::connect(server.address()).await.expect("it listens");
        let request = get("/healthz", "Host: localhost\r\n");
        for (second, byte) in request.iter().enumerate() {
            let closed = stream.write_all(&[*byte]).await.is_err();
            let mut bytes = [0; 1_024];
            match timeout(Duration::from_secs(1), stream.read(&mut bytes)).await {
                Ok(Ok(0) | Err(_)) => return second,
                Ok(Ok(_)) => {}
                Err(_) if closed => return second,
                Err(_) => {}
            }
        }
        panic!("a head that came a byte a second was taken")
    };
    let body = async {
        let request = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                       Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{";
        tell(&server, request.as_bytes()).await
    };
    let others = async {
        for _ in 0..10 {
            assert_eq!(server.get("/healthz").await.status, 200);
            sleep(Duration::from_millis(500)).await;
        }
    };
    let (seconds, told, ()) = tokio::join!(head, body, others);
    assert!(seconds >= 5, "it was cut off after {seconds} bytes");
    assert_eq!((told.status, told.code().as_deref()), (408, Some("TOO_SLOW")), "{}", told.head);
    assert_eq!(server.get("/healthz").await.status, 200);
}

/// Whatever is JSON comes back as it was sent, on both stores.
async fn what_a_payload_holds_is_its_own(store: Store) {
    let server = Server::start(&store);
    for payload in [
        r#""a\u0000b""#,
        r#"{"k":1,"k":2}"#,
        "1e400",
        "-0",
        r#""\ud83d\ude00 \u2028 </script>""#,
        "123456789012345678901234567890.000",
    ] {
        let answer = server.post(JOBS, &format!(r#"{{"payload":{payload}}}"#)).await;
        assert_eq!(answer.status, 201, "{payload}: {}", answer.text);
        let (_, id) = answer.text.split_once("\"job_id\":\"").expect("an id");
        let id = id.split('"').next().unwrap_or_default();
        let shown = server.get(&format!("/api/v1/jobs/{id}")).await.ok().text;
        assert!(shown.contains(&format!("\"payload\":{payload}")), "{payload}: {shown}");
        let claimed = server.post("/api/v1/claims", r#"{"worker_id":"w"}"#).await.ok().text;
        assert!(claimed.contains(&format!("\"payload\":{payload}")), "{payload}: {claimed}");
    }
}

/// HTTP/2 names the host in `:authority`, and a page of another site cannot choose that: without tokens only names of this
/// machine are answered, whatever else is said.
#[test]
fn a_foreign_authority_is_refused_over_http2() {
    block_on(async {
        let store = Store::sqlite();
        let server = Server::start(&store);
        let ask = async |authority: &str, host: Option<&str>| {
            let stream = TcpStream::connect(server.address()).await.expect("it listens");
            let (mut sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .expect("it speaks HTTP/2");
            tokio::spawn(connection);
            let uri = format!("http://{authority}/api/v1/jobs");
            let request = hyper::Request::get(uri);
            let request = host.into_iter().fold(request, |it, host| it.header("host", host));
            let request = request.body(String::new()).expect("it is a request");
            sender.send_request(request).await.expect("it answers").status().as_u16()
        };
        let port = server.address().rsplit(':').next().expect("it has a port");
        for ours in ["localhost", &format!("localhost:{port}"), "127.0.0.1", "[::1]"] {
            assert_eq!(ask(ours, None).await, 200, "{ours}");
        }
        for foreign in ["evil.example", "localhost.evil.example", "10.0.0.1"] {
            assert_eq!(ask(foreign, None).await, 403, "{foreign}");
            assert_eq!(ask(foreign, Some("localhost")).await, 403, "{foreign}, and host is ours");
        }
        assert_eq!(ask("localhost", Some("evil.example")).await, 403);
    });
}
