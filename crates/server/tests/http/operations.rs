//! What those who look after a server ask it, and what it says where there is nothing.

use reqwest::Method;

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::{Page, requests},
};

on_both_stores!(operations, it_stops_in_good_order, every_route_is_written_down);

async fn operations(store: Store) {
    let server = Server::start(&store);
    let mut page = Page::new(&server, "operations", "How the server is.");
    page.get("It lives.", "/healthz").await;
    page.get("It can take work.", "/readyz").await;
    page.get("A path that is not there.", "/api/v1/nothing").await;
    page.ask("A method that is not there.", Method::DELETE, "/healthz", &[], "").await;
    page.get("How the clock stands.", "/api/v1/clock").await;
    let body = r#"{"reason": "the time server was away"}"#;
    page.post("Somebody says that it is right.", "/api/v1/clock/accept", body).await;
    page.get("Who did.", "/api/v1/audit").await;
    page.get("What it counts.", "/metrics").await;
    page.get("This API, for people.", "/docs").await;
    page.get("Its codes.", "/docs/errors").await;
    page.get("This API, for programs.", "/openapi.json").await;
    page.finish();
    let figures = server.get("/metrics").await.text;
    let expected = r#"windlass_http_requests_total{method="GET",path="/healthz",status="200"} 1"#;
    assert!(figures.lines().any(|line| line == expected), "{figures}");
}

/// A claim that waits is answered at once, and the process ends well.
async fn it_stops_in_good_order(store: Store) {
    let server = Server::start(&store);
    let url = server.url("/api/v1/claims");
    let body = r#"{"worker_id":"w1","wait_ms":30000}"#;
    let request = crate::client::client().post(url).body(body);
    let request = request.header("content-type", "application/json");
    let waiting = tokio::spawn(crate::client::send(request));
    // Whoever waits for work is listed.
    while !server.get("/api/v1/workers").await.ok().text.contains(r#""worker_id":"w1""#) {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let status = server.stop();
    assert!(status.success(), "{status}");
    let answer = waiting.await.expect("it does not panic").expect("it is answered");
    assert_eq!(answer.text, r#"{"leases":[]}"#);
    store.check();
}

/// Whatever the document of the server names is on some page.
async fn every_route_is_written_down(store: Store) {
    let server = Server::start(&store);
    let answer = server.get("/openapi.json").await;
    let (document, written) = (answer.json(), requests());
    let fits = |template: &str, path: &str| {
        let (mut parts, mut pattern) = (path.split('/'), template.split('/'));
        parts.clone().count() == pattern.clone().count()
            && pattern.by_ref().zip(parts.by_ref()).all(|(pattern, part)| {
                pattern == part || pattern.starts_with('{') && !part.is_empty()
            })
    };
    let mut missing = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths by name") {
        for method in methods.as_object().expect("methods by name").keys() {
            let method = method.to_uppercase();
            let is_there = written.iter().any(|(it, at)| *it == method && fits(path, at));
            if !is_there {
                missing.push(format!("{method} {path}"));
            }
        }
    }
    assert_eq!(missing, [""; 0], "no page of snapshots has these");
}
