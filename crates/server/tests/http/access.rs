//! Tokens, what people did, acts on many, and alerts, answer by answer.

use std::time::Duration;

use reqwest::Method;

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(tokens, audit, acts_on_many, alerts);

const TOKENS: &str = "/api/v1/tokens";

async fn tokens(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "tokens", "Who may call, and what they may do.");
    page.get("Who the caller is.", "/api/v1/me").await;
    page.get("None.", TOKENS).await;
    let body = r#"{"principal": "ann", "role": "worker", "label": "the mailer", "expires_at": "2126-01-01T00:00:00Z"}"#;
    let id =
        page.post("One is issued. Its secret is shown once.", TOKENS, body).await.at("/token_id");
    page.get("All of them, without their secrets.", TOKENS).await;
    let one = format!("{TOKENS}/{id}");
    page.ask("It is revoked.", Method::DELETE, &one, &[], "").await;
    page.ask("Once more.", Method::DELETE, &one, &[], "").await;
    page.ask("What is no id is nobody's.", Method::DELETE, "/api/v1/tokens/seven", &[], "").await;
    page.post("A role that is none.", TOKENS, r#"{"principal": "ann", "role": "boss"}"#).await;
    page.post("Nobody.", TOKENS, r#"{"principal": "", "role": "worker"}"#).await;
    page.post("No role.", TOKENS, r#"{"principal": "ann"}"#).await;
    let body = r#"{"principal": "ann", "role": "worker", "tenant": "*"}"#;
    page.post("More than the caller has.", TOKENS, body).await;
    page.finish();
}

async fn audit(store: Store) {
    let server = Server::start(&store);
    let id = server.post("/api/v1/jobs", "{}").await.ok().at("/job/job_id");
    let cancel = format!("/api/v1/jobs/{id}/cancel");
    server.post(&cancel, r#"{"reason": "not wanted any more"}"#).await.ok();
    server.post("/api/v1/queues/post/pause", r#"{"reason": "a holiday"}"#).await.ok();
    let mut page = Page::new(&server, "audit", "What people did.");
    page.get("Newest first.", "/api/v1/audit").await;
    page.get("A limit that is too high.", "/api/v1/audit?limit=1001").await;
    page.get("A place that is none.", "/api/v1/audit?cursor=x").await;
    page.finish();
}

async fn acts_on_many(store: Store) {
    let server = Server::start(&store);
    server.post("/api/v1/jobs", r#"{"queue":"old"}"#).await.ok();
    let mut page =
        Page::new(&server, "acts-on-many", "All that fit are cancelled, retried or requeued.");
    let path = "/api/v1/operations";
    let body = r#"{"act": "cancel", "filter": {"queue": "old"}, "reason": "too old"}"#;
    page.post("What it would concern.", "/api/v1/operations/preview", body).await;
    let id = server.post(path, body).await.ok().at("/operation_id");
    let one = format!("{path}/{id}");
    while server.get(&one).await.ok().at("/state") != "succeeded" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    page.get("It is done.", &one).await;
    page.get("All of them.", path).await;
    page.post("An act that is none.", path, r#"{"act": "delete", "filter": {"queue": "old"}}"#)
        .await;
    let body = r#"{"act": "cancel", "filter": {"queue": "old"}, "per_second": 0}"#;
    page.post("Never.", "/api/v1/operations/preview", body).await;
    page.get("One that is not there.", "/api/v1/operations/job_00000000000000000000000007").await;
    page.finish();
}

async fn alerts(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "alerts", "What somebody should look at.");
    page.get("Nothing.", "/api/v1/alerts").await;
    page.get("A parameter that is not there.", "/api/v1/alerts?state=open").await;
    page.finish();
}
