//! Dead letters over HTTP, answer by answer.

use reqwest::Method;

use crate::{
    on_both_stores,
    server::{Server, Store},
    snapshot::Page,
};

on_both_stores!(letters, discard);

/// A letter that is nobody's.
const NOBODY: &str = "/api/v1/dlq/dlq_00000000000000000000000007";

/// Makes a job that fails for good, and gives the path of its letter.
async fn bury(server: &Server, payload: &str) -> String {
    let body = format!(r#"{{"kind":"mail","payload":{payload}}}"#);
    let id = server.post("/api/v1/jobs", &body).await.ok().at("/job/job_id");
    let run = format!("/api/v1/internal/jobs/{id}/run?force_fail=true");
    format!("/api/v1/dlq/{}", server.post(&run, "").await.ok().at("/dlq_id"))
}

async fn letters(store: Store) {
    let server = Server::start(&store);
    let letter = bury(&server, r#"{"to":"a@example.com","n":1.50}"#).await;
    let mut page = Page::new(&server, "letters", "What is left of jobs that failed.");
    page.get("All of them, newest first.", "/api/v1/dlq").await;
    page.get("Those that nobody has decided on: by cause.", "/api/v1/dlq/groups").await;
    page.get("One, with its job.", &letter).await;
    let requeue = format!("{letter}/requeue");
    let body = r#"{"payload": {"to": "b@example.com"}}"#;
    page.post("A new job takes over, with another payload.", &requeue, body).await;
    page.post("Once more.", &requeue, "").await;
    let body = r#"{"reason": "too old"}"#;
    page.post("Too late to throw it away.", &format!("{letter}/discard"), body).await;
    page.get("By state.", "/api/v1/dlq?state=open&limit=1").await;
    page.get("By cause, those that were requeued.", "/api/v1/dlq/groups?state=requeued").await;
    page.get("A state that is not there.", "/api/v1/dlq?state=closed").await;
    page.get("A state that is not there, by cause.", "/api/v1/dlq/groups?state=closed").await;
    page.get("A limit that is too high.", "/api/v1/dlq?limit=1001").await;
    page.get("One that is not there.", NOBODY).await;
    page.get("What is no id is nobody's.", "/api/v1/dlq/seven").await;
    page.post("A new job for one that is not there.", &format!("{NOBODY}/requeue"), "").await;
    page.post("A field that nobody knows.", &requeue, r#"{"kind": "mail"}"#).await;
    let letter = bury(&server, "null").await;
    let requeue = format!("{letter}/requeue?contract=jobs");
    page.post("In the words of a contract, with the same payload.", &requeue, "").await;
    page.post("Once more, in its words.", &requeue, "").await;
    page.finish();
}

async fn discard(store: Store) {
    let server = Server::start(&store);
    let letter = bury(&server, "null").await;
    let mut page = Page::new(&server, "discard", "A dead letter is thrown away, by two people.");
    let (discard, approve) = (format!("{letter}/discard"), format!("{letter}/discard/approve"));
    let ann = [("content-type", "application/json"), ("x-windlass-actor", "ann")];
    let bob = [("x-windlass-actor", "bob")];
    let post = Method::POST;
    page.ask("Nobody asked for it yet.", post.clone(), &approve, &bob, "").await;
    page.ask("No reason.", post.clone(), &discard, &ann, "{}").await;
    page.ask("An empty reason.", post.clone(), &discard, &ann, r#"{"reason": " "}"#).await;
    let body = r#"{"reason": "the customer is gone"}"#;
    page.ask("One person asks.", post.clone(), &discard, &ann, body).await;
    page.ask("The same person agrees.", post.clone(), &approve, &ann, "").await;
    page.ask("Another person agrees.", post.clone(), &approve, &bob, "").await;
    page.ask("Once more.", post.clone(), &approve, &bob, "").await;
    page.ask("And asked for once more.", post.clone(), &discard, &ann, body).await;
    page.post("Too late for another job.", &format!("{letter}/requeue"), "").await;
    page.ask("One that is not there.", post.clone(), &format!("{NOBODY}/discard"), &ann, body)
        .await;
    page.ask("Nor is it agreed to.", post, &format!("{NOBODY}/discard/approve"), &bob, "").await;
    page.finish();
}
