//! Queues, rules and workers over HTTP, answer by answer.

use reqwest::Method;

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(queues, rules);

const JOBS: &str = "/api/v1/jobs";

async fn queues(store: Store) {
    // Workers of its own have names that differ from run to run.
    let server = Server::start_with_config(&store, "[executors.http]\nenabled = false\n");
    let mut page =
        Page::new(&server, "queues", "Queues: how full they are, and whether they go on.");
    page.get("None.", "/api/v1/queues").await;
    for _ in 0..2 {
        server.post(JOBS, r#"{"queue":"post"}"#).await.ok();
    }
    server.post("/api/v1/claims", r#"{"worker_id":"w1","queues":["post"]}"#).await.ok();
    page.get("Jobs by state.", "/api/v1/queues").await;
    page.get("One of them.", "/api/v1/queues/post").await;
    page.get("One that nobody named.", "/api/v1/queues/nothing").await;
    // It never had anything to do.
    let idle = r#"{"worker_id":"w2","queues":["letters"],"kinds":["mail"]}"#;
    server.post("/api/v1/claims", idle).await.ok();
    page.get("Who works, and who waits.", "/api/v1/workers").await;
    page.get("Everything at a glance.", "/api/v1/overview").await;
    let body = r#"{"reason": "the provider is down"}"#;
    page.post("Nothing is started any more.", "/api/v1/queues/post/pause", body).await;
    let claim = r#"{"worker_id":"w1","queues":["post"]}"#;
    page.post("So there is nothing to claim.", "/api/v1/claims", claim).await;
    page.post("Nothing is taken in any more.", "/api/v1/queues/post/drain", "").await;
    page.post("So a job is refused.", JOBS, r#"{"queue": "post"}"#).await;
    page.get("It is seen.", "/api/v1/queues").await;
    page.post("It goes on.", "/api/v1/queues/post/resume", "").await;
    page.post("It went on before.", "/api/v1/queues/post/resume", "").await;
    let body = r#"{"why": "the provider is down"}"#;
    page.post("A field that nobody knows.", "/api/v1/queues/post/pause", body).await;
    page.post("A name that is none.", "/api/v1/queues/a%00b/drain", "").await;
    page.post("One without jobs is held back.", "/api/v1/queues/later/pause", "").await;
    page.get("It is there all the same.", "/api/v1/queues/later").await;
    page.get("A parameter that is not there.", "/api/v1/queues?name=post").await;
    page.get("Nor there.", "/api/v1/workers?name=w1").await;
    page.finish();
}

async fn rules(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "rules", "Rules that say who may run.");
    let json = [("content-type", "application/json")];
    let path = "/api/v1/rules/two-at-a-time";
    let (put, delete) = (Method::PUT, Method::DELETE);
    let body = r#"{"scope": {"queue": "post"}, "says": {"concurrency": {"max": 2, "each": "together"}}, "reason": "they asked for it"}"#;
    page.ask("One is set.", put.clone(), path, &json, body).await;
    page.get("All of them.", "/api/v1/rules").await;
    page.ask("One that says nothing.", put.clone(), path, &json, "{}").await;
    page.ask("One that nobody knows.", put.clone(), path, &json, r#"{"says": "hurry"}"#).await;
    let body = r#"{"scope": {"tenant": "other"}, "says": "pause"}"#;
    page.ask("One for somebody else.", put.clone(), path, &json, body).await;
    let body = r#"{"says": {"concurrency": {"max": 0, "each": "together"}}}"#;
    page.ask("One that lets nothing run.", put, path, &json, body).await;
    page.ask("It is taken away.", delete.clone(), path, &[], "").await;
    page.ask("It is gone.", delete, path, &[], "").await;
    page.get("None.", "/api/v1/rules").await;
    page.finish();
}
