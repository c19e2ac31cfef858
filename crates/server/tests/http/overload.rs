//! Overload: what is too much is refused at once, and what workers hold is not lost because of it.

use std::time::Duration;

use reqwest::StatusCode;
use windlass::rusqlite::Connection;

use crate::server::{Server, Store, block_on};

/// The file is locked by somebody else, so that writes wait: as many calls as there are places for are held, and the
/// next is told to come back.
#[test]
fn calls_beyond_the_bound_are_told_to_come_back() {
    block_on(async {
        let store = Store::sqlite();
        let server = Server::start_with_config(&store, "[server]\ncalls_max = 2\n");
        let job = server.post("/api/v1/jobs", r#"{"queue": "held"}"#).await.ok().at("/job/job_id");
        let claim = r#"{"worker_id": "w", "queues": ["held"], "start": true}"#;
        server.post("/api/v1/claims", claim).await.ok();
        let file = store.url().strip_prefix("sqlite:").expect("it is a file");
        let lock = Connection::open(file).expect("the file can be opened");
        lock.execute_batch("BEGIN IMMEDIATE").expect("it can be locked");
        let first = server.post("/api/v1/jobs", r#"{"idempotency_key": "1"}"#);
        let second = server.post("/api/v1/jobs", r#"{"idempotency_key": "2"}"#);
        let settle =
            format!(r#"{{"leases": [{{"job_id": "{job}", "epoch": 1, "outcome": "succeeded"}}]}}"#);
        let settled = server.post("/api/v1/leases/settle", &settle);
        let others = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let refused = server.post("/api/v1/jobs", "{}").await;
            assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text);
            assert_eq!(refused.at("/code"), "OVERLOADED");
            assert_eq!(refused.headers["retry-after"], "1");
            assert_eq!(server.get("/healthz").await.status, StatusCode::OK);
            lock.execute_batch("ROLLBACK").expect("it can be let go");
        };
        let (first, second, settled, ()) = tokio::join!(first, second, settled, others);
        assert_eq!((first.status, second.status), (StatusCode::CREATED, StatusCode::CREATED));
        assert_eq!(settled.ok().at("/results/0/state"), "succeeded");
        drop(server);
        store.check();
    });
}

/// A principal that calls too often is told so, and others are served.
#[test]
fn who_calls_too_often_is_told_to_wait() {
    block_on(async {
        let store = Store::sqlite();
        let server = Server::start_with_config(&store, "[server]\ncalls_per_second = 5\n");
        let mut refused = None;
        for _ in 0..50 {
            let answer = server.get("/api/v1/jobs").await;
            if answer.status == StatusCode::TOO_MANY_REQUESTS {
                refused = Some(answer);
                break;
            }
        }
        let refused = refused.expect("fifty calls at once are too many");
        assert_eq!(refused.at("/code"), "TOO_MANY_REQUESTS");
        assert_eq!(refused.headers["retry-after"], "1");
        let other = crate::client::client().get(server.url("/api/v1/jobs"));
        let other = other.header("x-windlass-actor", "bob").send().await.expect("it answers");
        assert_eq!(other.status(), StatusCode::OK);
    });
}
