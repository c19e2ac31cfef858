//! Traces: a collector hears of calls, enqueues and executions, as one trace.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

#[path = "serving/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod serving;

use std::{fs, process::Stdio, time::Instant};

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
    let failed = json!({"job_id": id, "epoch": epoch, "outcome": "failed", "error": {"code": "NO_POST", "retryable": true}});
    let settle = json!({"worker_id": "w1", "leases": [failed]});
    let (_, settled) = server.call("POST", "/api/v1/leases/settle", Some(&settle));
    assert_eq!(settled["results"][0]["ok"], true, "{settled}");
    server.stop();
    let [.., execute] = check_line(&collector, "mail");
    let status = execute.status.unwrap();
    assert_eq!((status.code, status.message.as_str()), (StatusCode::Error as i32, "NO_POST"));
}

/// The enqueue of this job, once it is told.
fn enqueue_of(collector: &Receiver, id: &str) -> Span {
    let is_it = |span: &Span| {
        span.kind == SpanKind::Producer as i32 && format!("{:?}", span.attributes).contains(id)
    };
    let find = || spans(collector).into_iter().find(is_it);
    until("an enqueue", || find().is_some());
    let count = spans(collector).iter().filter(|span| is_it(span)).count();
    assert_eq!(count, 1, "it is told once");
    find().unwrap()
}

/// Lets the job that waits fail, and gives back its letter.
fn fail(server: &Server, id: &str) -> String {
    let claim = json!({"worker_id": "w1", "start": true});
    let (_, claimed) = server.call("POST", "/api/v1/claims", Some(&claim));
    let lease = &claimed["leases"][0];
    assert_eq!(lease["job"]["job_id"], id);
    let error = json!({"code": "GONE", "class": "permanent", "retryable": false});
    let failed =
        json!({"job_id": id, "epoch": lease["epoch"], "outcome": "failed", "error": error});
    let settle = json!({"worker_id": "w1", "leases": [failed]});
    let (_, settled) = server.call("POST", "/api/v1/leases/settle", Some(&settle));
    settled["results"][0]["dlq_id"].as_str().unwrap_or_else(|| panic!("{settled}")).to_owned()
}

#[test]
fn a_job_that_runs_again_stands_in_the_trace_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let collector = Receiver::start(|_| 200);
    let config = format!("[traces]\nendpoint = \"http://{}\"\n", collector.address);
    let server = Server::start(folder.path(), &config);
    let first = enqueue(&server, &json!({"kind": "mail", "max_retries": 0}));
    let letter = fail(&server, &first);
    let path = format!("/api/v1/dlq/{letter}/requeue");
    let (status, requeued) = server.call("POST", &path, Some(&json!({})));
    assert_eq!(status, 201, "{requeued}");
    let second = requeued["job"]["job_id"].as_str().unwrap().to_owned();
    fail(&server, &second);
    let (_, again) = server.call("POST", &format!("/api/v1/jobs/{second}/retry"), Some(&json!({})));
    let third = again["job_id"].as_str().unwrap_or_else(|| panic!("{again}")).to_owned();
    let [first, second, third] = [first, second, third].map(|id| enqueue_of(&collector, &id));
    for (again, before, call) in [
        (&second, &first, "POST /api/v1/dlq/{id}/requeue"),
        (&third, &second, "POST /api/v1/jobs/{id}/retry"),
    ] {
        assert_eq!(hex(&again.trace_id), TRACE);
        assert_eq!(again.parent_span_id, before.span_id);
        // Whoever asked for it did so in another trace.
        assert_eq!(again.links[0].span_id, span(&collector, call).span_id);
    }
}

#[test]
fn what_the_server_makes_by_itself_has_an_enqueue_too() {
    let folder = tempfile::tempdir().unwrap();
    let (collector, receiver) = (Receiver::start(|_| 200), Receiver::start(|_| 204));
    let config = format!(
        "[traces]\nendpoint = \"http://{}\"\n[executors.http]\nallow = [\"127.0.0.1\"]\n\
         [[webhooks]]\nname = \"orders\"\nurl = \"http://{}/hook\"\nsecret = \"a secret that two know\"\n",
        collector.address, receiver.address
    );
    let server = Server::start(folder.path(), &config);
    // A delivery stands under the enqueue of the job that it tells of.
    let job = enqueue(&server, &json!({"kind": "mail"}));
    let delivery = span(&collector, "enqueue windlass.webhook");
    assert_eq!(hex(&delivery.trace_id), TRACE);
    assert_eq!(delivery.parent_span_id, enqueue_of(&collector, &job).span_id);
    let delivered = span(&collector, "execute windlass.webhook");
    assert_eq!(hex(&delivered.trace_id), TRACE);
    // A firing begins a trace; a trigger is part of the call that asked for it.
    let schedule = json!({"name": "often", "every_ms": 1000, "job": {"kind": "tick"}});
    let (status, put) = server.call("POST", "/api/v1/schedules", Some(&schedule));
    assert_eq!(status, 201, "{put}");
    let fired = span(&collector, "enqueue tick");
    assert_eq!((fired.parent_span_id.len(), fired.links.len()), (0, 0), "{fired:?}");
    let traced = format!("traceparent: 00-{TRACE}-{CALLER}-01\r\n");
    let path = "/api/v1/schedules/often/trigger";
    let (status, text) = server.call_with("POST", path, &traced, Some(&json!({})));
    assert_eq!(status, 201, "{text}");
    let triggered: Value = serde_json::from_str(&text).unwrap();
    let triggered = enqueue_of(&collector, triggered["job_id"].as_str().unwrap());
    let call = span(&collector, "POST /api/v1/schedules/{name}/trigger");
    assert_eq!(hex(&triggered.trace_id), TRACE);
    assert_eq!(triggered.parent_span_id, call.span_id);
}

#[test]
fn a_collector_that_is_away_holds_nothing_up_and_is_told_of_once() {
    let folder = tempfile::tempdir().unwrap();
    // A port that no other test is given, as one that was free a moment ago would be.
    let nobody = "127.0.0.1:1";
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
