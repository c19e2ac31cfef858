//! Which workers are there: a goodbye is known at once, and whoever crashed is told by when it was last seen.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    client::client,
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(
    goodbye,
    a_goodbye_ends_the_claim_that_waits_and_the_next_one_is_heard_of,
    whoever_waits_is_there_and_whoever_hung_up_is_silent,
    a_renewal_is_a_sign_of_life_also_without_a_name,
    every_node_knows_who_waits_at_another,
);

const CLAIMS: &str = "/api/v1/claims";
const W1: &str = "/api/v1/workers/w1";

async fn make(server: &Server, body: &Value) -> String {
    server.post("/api/v1/jobs", &body.to_string()).await.ok().at("/job/job_id")
}

/// The reasons why a job does not run.
async fn reasons(server: &Server, id: &str) -> Vec<Value> {
    let mut why = server.get(&format!("/api/v1/jobs/{id}/why")).await.ok().json();
    serde_json::from_value(why["reasons"].take()).expect("a list")
}

/// The names of these reasons.
async fn names(server: &Server, id: &str) -> Vec<String> {
    let reasons = reasons(server, id).await;
    reasons.iter().map(|it| it["reason"].as_str().expect("a name").to_owned()).collect()
}

/// Waits until these are the reasons, and gives back the last.
async fn until_reasons(server: &Server, id: &str, expected: &[&str]) -> Value {
    let began = Instant::now();
    loop {
        let mut reasons = reasons(server, id).await;
        let names: Vec<&str> = reasons.iter().filter_map(|it| it["reason"].as_str()).collect();
        if names == expected {
            return reasons.pop().expect("there is one");
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{names:?}, not {expected:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A claim that waits in queue `post`, as a worker would send it.
fn claim(server: &Server, worker: &str) -> reqwest::RequestBuilder {
    let body = json!({"worker_id": worker, "queues": ["post"], "wait_ms": 30_000});
    let request = client().post(server.url(CLAIMS)).header("content-type", "application/json");
    request.body(body.to_string())
}

/// A job that nobody may claim, so that a claim can wait although it is there.
async fn paused(server: &Server) -> String {
    server.post("/api/v1/queues/post/pause", "").await.ok();
    make(server, &json!({"queue": "post"})).await
}

async fn goodbye(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "goodbye", "A worker takes its leave.");
    let delete = Method::DELETE;
    page.ask("Nobody knows it.", delete.clone(), W1, &[], "").await;
    make(&server, &json!({"kind": "mail", "queue": "post"})).await;
    let body = r#"{"worker_id": "w1", "queues": ["post"], "start": true}"#;
    let held = server.post(CLAIMS, body).await.ok();
    let next = make(&server, &json!({"kind": "mail", "queue": "post"})).await;
    page.get("It is there, and another job is next.", &format!("/api/v1/jobs/{next}/why")).await;
    page.ask("It says goodbye.", delete.clone(), W1, &[], "").await;
    page.get("It is counted on no more.", &format!("/api/v1/jobs/{next}/why")).await;
    page.ask("Once more.", delete.clone(), W1, &[], "").await;
    page.ask("A name that is none.", delete.clone(), "/api/v1/workers/a%2Fb", &[], "").await;
    let own = "/api/v1/workers/windlass.bulk";
    page.ask("One of the server's own.", delete, own, &[], "").await;
    page.finish();
    // What it holds it keeps: it renews and settles as before, and that does not bring it back.
    let lease = json!({"job_id": held.at("/leases/0/job/job_id"), "epoch": 1});
    let body = json!({"worker_id": "w1", "leases": [lease]});
    let renewed = server.post("/api/v1/leases/renew", &body.to_string()).await.ok();
    assert_eq!(renewed.at("/results/0/ok"), "true", "{}", renewed.text);
    let renewed = server.post("/api/v1/leases/renew", r#"{"worker_id": "w1"}"#).await.ok();
    assert_eq!(renewed.json()["results"].as_array().map(Vec::len), Some(1), "{}", renewed.text);
    let mut body = body;
    body["leases"][0]["outcome"] = "succeeded".into();
    let settled = server.post("/api/v1/leases/settle", &body.to_string()).await.ok();
    assert_eq!(settled.at("/results/0/state"), "succeeded", "{}", settled.text);
    assert_eq!(names(&server, &next).await, ["no_worker_for_queue"]);
}

async fn a_goodbye_ends_the_claim_that_waits_and_the_next_one_is_heard_of(store: Store) {
    let server = Server::start(&store);
    let id = paused(&server).await;
    for _ in 0..2 {
        let began = Instant::now();
        let waiting = tokio::spawn(claim(&server, "w1").send());
        until_reasons(&server, &id, &["rule"]).await;
        let gone = client().delete(server.url(W1)).send().await.expect("it answers");
        assert_eq!(gone.status(), 200);
        let answer = waiting.await.expect("it ends").expect("it is answered");
        let answer = answer.text().await.expect("it is text");
        assert_eq!(answer, r#"{"leases":[]}"#);
        assert!(began.elapsed() < Duration::from_secs(25), "it does not wait to the end");
        assert_eq!(names(&server, &id).await, ["rule", "no_worker_for_queue"]);
    }
}

async fn whoever_waits_is_there_and_whoever_hung_up_is_silent(store: Store) {
    let server = Server::start(&store);
    let id = paused(&server).await;
    let waiting = tokio::spawn(claim(&server, "w1").send());
    until_reasons(&server, &id, &["rule"]).await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(names(&server, &id).await, ["rule"], "its claim waits");
    waiting.abort();
    let reason = until_reasons(&server, &id, &["rule", "workers_silent"]).await;
    let told = [&reason["kind"], &reason["queue"], &reason["worker"], &reason["holds"]];
    assert_eq!(told, [&json!("default"), &json!("post"), &json!("w1"), &json!(0)]);
    let silent_ms = reason["silent_ms"].as_u64().expect("a number");
    assert!((5_000..60_000).contains(&silent_ms), "{reason}");
    // It is back, and there is nothing to tell.
    let waiting = tokio::spawn(claim(&server, "w1").send());
    until_reasons(&server, &id, &["rule"]).await;
    waiting.abort();
}

async fn a_renewal_is_a_sign_of_life_also_without_a_name(store: Store) {
    let server = Server::start(&store);
    make(&server, &json!({"queue": "post"})).await;
    let body = r#"{"worker_id": "w1", "queues": ["post"], "start": true, "lease_ms": 300000}"#;
    let held = server.post(CLAIMS, body).await.ok();
    let next = make(&server, &json!({"queue": "post"})).await;
    assert_eq!(names(&server, &next).await, ["in_line"]);
    let lease = json!({"job_id": held.at("/leases/0/job/job_id"), "epoch": 1});
    for worker in [Value::Null, "w1".into()] {
        let reason = until_reasons(&server, &next, &["workers_silent"]).await;
        assert_eq!((&reason["worker"], &reason["holds"]), (&json!("w1"), &json!(1)));
        let body = json!({"worker_id": worker, "lease_ms": 300_000, "leases": [lease]});
        let renewed = server.post("/api/v1/leases/renew", &body.to_string()).await.ok();
        assert_eq!(renewed.at("/results/0/ok"), "true", "{}", renewed.text);
        assert_eq!(names(&server, &next).await, ["in_line"]);
    }
}

/// The node that a worker waits at gives its word for it now and then.
async fn every_node_knows_who_waits_at_another(store: Store) {
    if !store.url().starts_with("postgres") {
        return;
    }
    let (one, two) = (Server::start(&store), Server::start(&store));
    let id = paused(&one).await;
    let waiting = tokio::spawn(claim(&one, "w1").send());
    until_reasons(&two, &id, &["rule"]).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(22) {
        assert_eq!(names(&two, &id).await, ["rule"], "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    waiting.abort();
    let reason = until_reasons(&two, &id, &["rule", "workers_silent"]).await;
    assert_eq!(reason["worker"], "w1", "{reason}");
    let gone = client().delete(two.url(W1)).send().await.expect("it answers");
    assert_eq!(gone.status(), 200, "any node hears its goodbye");
    assert_eq!(names(&one, &id).await, ["rule", "no_worker_for_queue"]);
}
