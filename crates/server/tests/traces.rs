//! Traces: a collector hears of calls, enqueues and executions, as one trace.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

#[path = "serving/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod serving;

use std::{fs, net::TcpListener, process::Stdio, time::Instant};

use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message as _;
use serde_json::{Value, json};
use serving::{Receiver, Server, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Every span that a collector has heard of.
fn spans(collector: &Receiver) -> Vec<Span> {
    let mut spans = Vec::new();
    for call in collector.received() {
        assert_eq!(call.headers["content-type"], "application/x-protobuf");
        let request = ExportTraceServiceRequest::decode(call.bytes.as_slice()).unwrap();
        for resource in request.resource_spans {
            let attributes = format!("{:?}", resource.resource.unwrap().attributes);
            assert!(attributes.contains("windlass"), "{attributes}");
            spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
    spans
}

/// The span of this name, once it is told.
fn span(collector: &Receiver, name: &str) -> Span {
    let find = || spans(collector).into_iter().find(|span| span.name == name);
    until(name, || find().is_some());
    find().unwrap()
}

/// Enqueues a job as part of the trace.
fn enqueue(server: &Server, body: &Value) -> String {
    let traced = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    let (status, text) = server.call_with("POST", "/api/v1/jobs", &traced, Some(body));
    assert_eq!(status, 201, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    answer["job"]["job_id"].as_str().unwrap().to_owned()
}

/// Is the call the caller's, the enqueue the call's, and the execution the enqueue's?
fn check_line(collector: &Receiver, kind: &str) -> [Span; 3] {
    let call = span(collector, "POST /api/v1/jobs");
    let enqueue = span(collector, &format!("enqueue {kind}"));
    let execute = span(collector, &format!("execute {kind}"));
    for span in [&call, &enqueue, &execute] {
        assert_eq!(hex(&span.trace_id), TRACE, "{span:?}");
        assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    }
    assert_eq!(hex(&call.parent_span_id), CALLER);
    assert_eq!(enqueue.parent_span_id, call.span_id);
    assert_eq!(execute.parent_span_id, enqueue.span_id);
    assert_eq!(call.kind, SpanKind::Server as i32);
    assert_eq!(enqueue.kind, SpanKind::Producer as i32);
    assert_eq!(execute.kind, SpanKind::Consumer as i32);
    [call, enqueue, execute]
}

#[test]
fn a_call_and_what_a_built_in_executor_does_are_one_trace() {
    let folder = tempfile::tempdir().unwrap();
    let (collector, receiver) = (Receiver::start(|_| 200), Receiver::start(|_| 200));
    let config = format!(
        "[traces]\nendpoint = \"http://{}\"\n[executors.http]\nallow = [\"127.0.0.1\"]\n",
        collector.address
    );
    let server = Server::start(folder.path(), &config);
    let url = format!("http://{}/a", receiver.address);
    let id = enqueue(&server, &json!({"kind": "http", "payload": {"url": url, "body": "secret"}}));
    server.job_in(&id, "succeeded");
    let [_, _, execute] = check_line(&collector, "http");
    // Whoever is called goes on from the execution.
    let parent = format!("00-{TRACE}-{}-01", hex(&execute.span_id));
    assert_eq!(receiver.received()[0].headers["traceparent"], parent);
    let told = format!("{:?}", spans(&collector));
    assert!(told.contains(&id) && !told.contains("secret"), "{told}");
}

#[test]
fn a_worker_elsewhere_is_part_of_the_trace_and_what_is_left_is_told_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Receiver::start(|_| 200);
    let store = format!("sqlite:{}", folder.path().join("windlass.db").display());
    let endpoint = format!("http://{}", collector.address);
    let server = Server::start_on(&store, folder.path(), "", "127.0.0.1:0", |command| {
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    });
    let id = enqueue(&server, &json!({"kind": "mail", "max_retries": 0}));
    let claim = json!({"worker_id": "w1", "start": true});
    let (_, claimed) = server.call("POST", "/api/v1/claims", Some(&claim));
    let epoch = &claimed["leases"][0]["epoch"];
    let failed =
        json!({"job_id": id, "epoch": epoch, "outcome": "failed", "error": {"code": "NO_POST"}});
    let settle = json!({"worker_id": "w1", "leases": [failed]});
    let (_, settled) = server.call("POST", "/api/v1/leases/settle", Some(&settle));
    assert_eq!(settled["results"][0]["ok"], true, "{settled}");
    server.stop();
    let [.., execute] = check_line(&collector, "mail");
    let status = execute.status.unwrap();
    assert_eq!((status.code, status.message.as_str()), (StatusCode::Error as i32, "NO_POST"));
}

#[test]
fn a_collector_that_is_away_holds_nothing_up_and_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = fs::File::create(folder.path().join("log")).unwrap();
    let store = format!("sqlite:{}", folder.path().join("windlass.db").display());
    let config = format!("[traces]\nendpoint = \"http://{nobody}\"\n");
    let server = Server::start_on(&store, folder.path(), &config, "127.0.0.1:0", |command| {
        command.stderr(Stdio::from(log));
    });
    let began = Instant::now();
    let lost = || {
        server.enqueue(&json!({"kind": "mail"}));
        let (_, figures) = server.call_with("GET", "/metrics", "", None);
        let line = figures.lines().find(|line| line.starts_with("windlass_spans_lost_total "));
        let number = line.and_then(|line| line.split(' ').nth(1)?.parse::<u64>().ok());
        number.unwrap_or_else(|| panic!("{figures}"))
    };
    let mut calls = 0;
    let mut seen = Vec::new();
    // Lost in three batches at least.
    until("losing spans", || {
        calls += 2;
        seen.push(lost());
        seen.dedup();
        seen.len() > 3
    });
    let each = began.elapsed() / calls;
    assert!(each.as_millis() < 500, "a call took {each:?}");
    server.stop();
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log.matches("the collector of traces does not answer").count(), 1, "{log}");
}
