//! Webhooks: every event that fits is told, signed, until the receiver has taken it.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

#[path = "serving/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod serving;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use serving::{Received, Receiver, Server, until};
use sha2::Sha256;
use windlass_testkit::postgres::Cluster;

const SECRET: &str = "a secret that two know";
/// A port that is free.
const LISTEN: &str = "127.0.0.1:0";

fn config(receiver: SocketAddr, more: &str) -> String {
    format!(
        "[executors.http]\nallow = [\"{}\"]\n\n[[webhooks]]\nname = \"orders\"\n\
         url = \"http://{receiver}/hook\"\nsecret = \"{SECRET}\"\nbackoff_ms = 20\n{more}\n",
        receiver.ip()
    )
}

/// Is it signed by someone who knows the secret?
fn is_signed(call: &Received) -> bool {
    let header = |name: &str| call.headers[name].as_str();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    let (id, at) = (header("webhook-id"), header("webhook-timestamp"));
    mac.update(format!("{id}.{at}.{}", call.body).as_bytes());
    let signature = header("webhook-signature").strip_prefix("v1,").unwrap();
    mac.verify_slice(&BASE64_STANDARD.decode(signature).unwrap()).is_ok()
}

fn event(call: &Received) -> Value {
    serde_json::from_str(&call.body).unwrap()
}

fn id(call: &Received) -> String {
    call.headers["webhook-id"].clone()
}

/// A PostgreSQL database that nobody else uses.
fn postgres(schema: &str) -> String {
    let port = Cluster::shared().port();
    format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}")
}

/// The store of a folder.
fn sqlite(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("windlass.db").display())
}

#[test]
fn an_event_is_told_once_and_signed_and_deliveries_tell_nothing_of_themselves() {
    let folder = tempfile::tempdir().unwrap();
    tells_once(&sqlite(folder.path()), folder.path());
    tells_once(&postgres("webhooks_once"), folder.path());
}

fn tells_once(store: &str, folder: &Path) {
    let receiver = Receiver::start(|_| 204);
    let server = Server::start_on(store, folder, &config(receiver.address, ""), LISTEN, |_| {});
    let job = server.enqueue(&json!({ "kind": "order", "payload": {"n": 1} }));
    until("the delivery", || !receiver.received().is_empty());
    let (status, _) = server.call("POST", &format!("/api/v1/jobs/{job}/cancel"), Some(&json!({})));
    assert_eq!(status, 200);
    let of_job = |call: &Received| event(call)["payload"]["job_id"] == job.as_str();
    until("the second", || receiver.received().iter().filter(|call| of_job(call)).count() == 2);
    // Were deliveries told of, there would be no end of it.
    thread::sleep(Duration::from_millis(500));
    let received = receiver.received();
    assert!(received.iter().all(is_signed));
    let jobs: Vec<_> = received.iter().map(event).filter(|event| event["type"] == "job").collect();
    assert_eq!(jobs.len(), 2, "{jobs:?}");
    let states: BTreeSet<_> = jobs.iter().map(|it| it["payload"]["to"].to_string()).collect();
    assert_eq!(states, BTreeSet::from(["\"cancelled\"".to_owned(), "\"queued\"".to_owned()]));
    let ids: BTreeSet<_> = received.iter().map(id).collect();
    assert_eq!(ids.len(), received.len());
    for call in &received {
        assert_eq!(id(call), format!("orders:{}", event(call)["number"]));
        assert_eq!(call.headers["content-type"], "application/json");
    }
}

#[test]
fn keys_that_a_caller_took_in_advance_silence_nothing() {
    let folder = tempfile::tempdir().unwrap();
    told_in_spite_of_keys(&sqlite(folder.path()), folder.path());
    told_in_spite_of_keys(&postgres("webhooks_keys"), folder.path());
}

fn told_in_spite_of_keys(store: &str, folder: &Path) {
    let receiver = Receiver::start(|_| 204);
    let server = Server::start_on(store, folder, &config(receiver.address, ""), LISTEN, |_| {});
    let taken = |number: u32| {
        let key = format!("orders:{number}");
        json!({ "kind": "x", "idempotency_scope": "webhooks", "idempotency_key": key })
    };
    let jobs: Vec<Value> = (1..=200).map(taken).collect();
    let (status, made) = server.call("POST", "/api/v1/jobs/batch", Some(&json!({ "jobs": jobs })));
    assert_eq!(status, 200, "{made}");
    let job = server.enqueue(&json!({ "kind": "order" }));
    let of_job = |call: &Received| event(call)["payload"]["job_id"] == job.as_str();
    until("the delivery", || receiver.received().iter().any(of_job));
    until("the others", || {
        let told: BTreeSet<_> = receiver.received().iter().map(id).collect();
        told.len() >= 201
    });
}

/// What a receiver is told bears our signature, so nobody else says what it is told.
#[test]
fn the_payload_of_a_delivery_cannot_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 410);
    let server = Server::start(folder.path(), &config(receiver.address, ""));
    server.enqueue(&json!({ "kind": "order" }));
    let mut letter = Value::Null;
    until("the dead letter", || {
        letter = server.get("/api/v1/dlq")["items"][0].clone();
        letter != Value::Null
    });
    let path = format!("/api/v1/dlq/{}/requeue", letter["dlq_id"].as_str().unwrap());
    let event = json!({ "type": "FORGED" });
    let forged = json!({ "payload": { "webhook": "orders", "number": 4242, "event": event } });
    let (status, told) = server.call("POST", &path, Some(&forged));
    assert_eq!((status, &told["code"]), (422, &json!("INVALID_INPUT")), "{told}");
    let (status, told) = server.call("POST", &path, Some(&json!({})));
    assert_eq!(status, 201, "{told}");
    assert!(receiver.received().iter().all(|call| !call.body.contains("FORGED")));
}

#[test]
fn an_alert_is_told_when_it_begins_and_when_it_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let more = "feed = false\n[alerts]\nwebhook = \"orders\"\nqueue_age_ms = 1";
    let server = Server::start(folder.path(), &config(receiver.address, more));
    let job = server.enqueue(&json!({ "kind": "order", "queue": "slow" }));
    until("the alert", || !receiver.received().is_empty());
    server.call("POST", &format!("/api/v1/jobs/{job}/cancel"), Some(&json!({})));
    until("its end", || receiver.received().len() == 2);
    let (begun, over) = (event(&receiver.received()[0]), event(&receiver.received()[1]));
    assert_eq!((&begun["type"], &over["type"]), (&json!("alert.fired"), &json!("alert.cleared")));
    assert_eq!(
        (&begun["payload"]["name"], &begun["payload"]["queue"]),
        (&json!("queue_age"), &json!("slow"))
    );
    assert_eq!(over["payload"]["name"], "queue_age");
    assert!(receiver.received().iter().all(is_signed));
}

#[test]
fn an_old_secret_signs_beside_the_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let config = config(receiver.address, "secret_old = \"a secret that was known before\"");
    let server = Server::start(folder.path(), &config);
    server.enqueue(&json!({ "kind": "order" }));
    until("the delivery", || !receiver.received().is_empty());
    let mut call = receiver.received()[0].clone();
    let both = call.headers["webhook-signature"].clone();
    let (new, old) = both.split_once(' ').unwrap();
    assert!(old.starts_with("v1,") && old != new);
    call.headers.insert("webhook-signature".to_owned(), new.to_owned());
    assert!(is_signed(&call));
}

/// What the guide tells receivers in Python to do.
#[test]
fn the_check_in_the_guide_takes_what_is_genuine_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let server = Server::start(folder.path(), &config(receiver.address, ""));
    server.enqueue(&json!({ "kind": "order", "payload": "é" }));
    until("the delivery", || !receiver.received().is_empty());
    let call = &receiver.received()[0];
    let guide = include_str!("../../../docs/guide/webhooks.md");
    let block = guide.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    let script = format!(
        "{}\nimport json, sys\nsecret, headers, body, now = json.load(sys.stdin)\n\
         print(is_genuine(secret, headers, body.encode(), now))\n",
        block.expect("it has a check")
    );
    let at: u64 = call.headers["webhook-timestamp"].parse().unwrap();
    let ask = |secret: &str, body: &str, now: u64| {
        let mut python = Command::new("python3")
            .arg("-c")
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is Python");
        let input = json!([secret, call.headers, body, now]).to_string();
        python.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap().trim() == "True"
    };
    assert!(ask(SECRET, &call.body, at + 10));
    assert!(!ask("another secret that nobody knows", &call.body, at));
    assert!(!ask(SECRET, &format!("{} ", call.body), at));
    assert!(!ask(SECRET, &call.body, at + 301));
}

#[test]
fn only_what_was_asked_for_is_told_in_the_words_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let more = "contract = \"jobs\"\nevents = { states = [\"cancelled\"], kinds = [\"a\"] }";
    let server = Server::start(folder.path(), &config(receiver.address, more));
    for kind in ["b", "a"] {
        let job = server.enqueue(&json!({ "kind": kind }));
        server.call("POST", &format!("/api/v1/jobs/{job}/cancel"), Some(&json!({})));
    }
    server.enqueue(&json!({ "kind": "a" }));
    until("the delivery", || !receiver.received().is_empty());
    thread::sleep(Duration::from_millis(300));
    let received = receiver.received();
    assert_eq!(received.len(), 1, "{received:?}");
    let told = event(&received[0]);
    assert_eq!(told["type"], "job.status.changed", "{told}");
    assert_eq!(told["payload"]["status"], "cancelled", "{told}");
}

#[test]
fn a_receiver_that_is_down_is_told_when_it_is_up() {
    let folder = tempfile::tempdir().unwrap();
    // Other tests are on 127.0.0.1, so none of them is given this port before the receiver is up.
    let address = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
    let more = "max_retries = 20\nevents = { kinds = [\"order\"] }";
    let server = Server::start(folder.path(), &config(address, more));
    server.enqueue(&json!({ "kind": "order" }));
    let list = "/api/v1/jobs?kind=windlass.webhook&state=retry_scheduled";
    until("a retry", || !server.get(list)["items"].as_array().unwrap().is_empty());
    let receiver = Receiver::at(address, |number| if number == 0 { 503 } else { 200 });
    until("the delivery", || receiver.received().len() == 2);
    let received = receiver.received();
    assert_eq!(id(&received[0]), id(&received[1]));
    assert!(received.iter().all(is_signed));
    let done = "/api/v1/jobs?kind=windlass.webhook&state=succeeded";
    until("the end", || server.get(done)["items"].as_array().unwrap().len() == 1);
}

#[test]
fn what_is_never_taken_ends_in_the_dead_letters() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 500);
    let more = "max_retries = 2\nevents = { kinds = [\"order\"] }";
    let server = Server::start(folder.path(), &config(receiver.address, more));
    server.enqueue(&json!({ "kind": "order" }));
    let mut letters = Value::Null;
    until("the dead letter", || {
        letters = server.get("/api/v1/dlq");
        !letters["items"].as_array().unwrap().is_empty()
    });
    assert_eq!(receiver.received().len(), 3);
    let letter = letters["items"][0].to_string();
    assert!(letter.contains("HTTP_UNAVAILABLE"), "{letter}");
    assert!(!letter.contains(SECRET), "{letter}");
}

#[test]
fn a_server_that_is_killed_again_and_again_tells_everything_under_one_id() {
    let folder = tempfile::tempdir().unwrap();
    tells_all_though_killed(&sqlite(folder.path()), folder.path());
}

#[test]
fn a_server_on_postgres_that_is_killed_again_and_again_tells_everything_too() {
    let folder = tempfile::tempdir().unwrap();
    tells_all_though_killed(&postgres("webhooks_killed"), folder.path());
}

fn tells_all_though_killed(store: &str, folder: &Path) {
    const ROUNDS: usize = 4;
    const JOBS: usize = 12;
    let receiver = Receiver::start(|_| 200);
    let config = config(receiver.address, "max_retries = 20\nevents = { kinds = [\"order\"] }");
    let mut jobs = BTreeSet::new();
    for round in 0..ROUNDS {
        let server = Server::start_on(store, folder, &config, LISTEN, |_| {});
        if round == 0 {
            // A webhook that is new begins with what happens from then on.
            let first = server.enqueue(&json!({ "kind": "order" }));
            let told = |call: &Received| event(call)["payload"]["job_id"] == first.as_str();
            until("the first", || receiver.received().iter().any(told));
            jobs.insert(first);
        }
        for _ in 0..JOBS {
            jobs.insert(server.enqueue(&json!({ "kind": "order" })));
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(20 * round as u64));
        server.kill();
    }
    let server = Server::start_on(store, folder, &config, LISTEN, |_| {});
    let told = || {
        let mut told = BTreeMap::new();
        for call in receiver.received() {
            let job = event(&call)["payload"]["job_id"].as_str().unwrap().to_owned();
            told.entry(id(&call)).or_insert(job);
        }
        told
    };
    until("the rest", || told().len() >= jobs.len());
    thread::sleep(Duration::from_millis(500));
    // Whoever goes by the id counts each event once.
    let told = told();
    assert_eq!(told.len(), jobs.len());
    assert_eq!(told.into_values().collect::<BTreeSet<_>>(), jobs);
    let deliveries = server.get("/api/v1/jobs?kind=windlass.webhook&limit=200");
    assert_eq!(deliveries["items"].as_array().unwrap().len(), jobs.len());
    // Twice came only what was on its way when the server was killed.
    assert!(receiver.received().len() <= jobs.len() + ROUNDS * 16);
    assert!(receiver.received().iter().all(is_signed));
}
