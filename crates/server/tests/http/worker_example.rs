//! The worker in `examples/worker.py` keeps its promises.

use std::{
    path::Path,
    process::{Child, Command},
    time::{Duration, Instant},
};

use crate::{
    on_both_stores,
    server::{Server, Store, terminate},
};

on_both_stores!(
    the_example_worker_runs_retries_cancels_and_ends_in_good_order,
    the_example_worker_ends_though_the_server_is_away,
    the_example_worker_hangs_up_when_it_is_stopped,
    the_example_worker_says_goodbye_and_why_knows_at_once,
    why_tells_when_the_example_worker_was_last_seen_after_it_was_killed,
);

async fn the_example_worker_runs_retries_cancels_and_ends_in_good_order(store: Store) {
    let server = Server::start(&store);
    let worker = Worker::start(&server, "8");
    let echo = enqueue(&server, "echo", r#"{"n":[1,"a"]}"#).await;
    let retried = enqueue(&server, "fail", r#"{"retryable":true}"#).await;
    let buried = enqueue(&server, "fail", r#"{"retryable":false}"#).await;
    let unfit = enqueue(&server, "sleep", "{}").await;
    let cancelled = enqueue(&server, "sleep", r#"{"seconds":60}"#).await;
    let job = reach(&server, &echo, "succeeded").await;
    assert_eq!(job["result"], serde_json::json!({"n": [1, "a"]}));
    let job = reach(&server, &buried, "failed").await;
    assert_eq!((&job["retry_count"], &job["error"]["code"]), (&0.into(), &"ALWAYS_FAILS".into()));
    for (id, code) in [(&retried, "ALWAYS_FAILS"), (&unfit, "KeyError")] {
        let job = reach(&server, id, "failed").await;
        assert_eq!((&job["retry_count"], &job["error"]["code"]), (&1.into(), &code.into()));
        assert_eq!(job["dlq_id"].as_str().map(|id| &id[..4]), Some("dlq_"));
    }
    let job = reach(&server, &retried, "failed").await;
    assert_eq!(job["error"]["message"], format!("this was {retried}+1"));
    reach(&server, &cancelled, "running").await;
    server.post(&format!("/api/v1/jobs/{cancelled}/cancel"), "").await.ok();
    reach(&server, &cancelled, "cancelled").await;
    // What ends within its grace is settled; what does not is given back, and nobody counts it.
    let short = enqueue(&server, "sleep", r#"{"seconds":1}"#).await;
    let long = enqueue(&server, "sleep", r#"{"seconds":600}"#).await;
    reach(&server, &short, "running").await;
    reach(&server, &long, "running").await;
    worker.stop();
    reach(&server, &short, "succeeded").await;
    let job = reach(&server, &long, "interrupted").await;
    assert_eq!(job["interruptions"], 0);
    assert!(server.stop().success());
    store.check();
}

/// With a job that runs, and with none: the claim in progress and the release that nobody hears are bounded by the grace.
async fn the_example_worker_ends_though_the_server_is_away(store: Store) {
    for is_busy in [true, false] {
        let server = Server::start(&store);
        let worker = Worker::start(&server, "3");
        if is_busy {
            let long = enqueue(&server, "sleep", r#"{"seconds":600}"#).await;
            reach(&server, &long, "running").await;
        } else {
            let echo = enqueue(&server, "echo", "{}").await;
            reach(&server, &echo, "succeeded").await;
        }
        server.kill();
        worker.stop();
    }
}

/// Idle, it does not wait for its long poll. With a job that does not end, a second signal ends it at once.
async fn the_example_worker_hangs_up_when_it_is_stopped(store: Store) {
    let server = Server::start(&store);
    let worker = Worker::start(&server, "600");
    let echo = enqueue(&server, "echo", "{}").await;
    reach(&server, &echo, "succeeded").await;
    // Its claim waits for 20 s.
    worker.stop_within(Duration::from_secs(15));
    let mut worker = Worker::start(&server, "600");
    let long = enqueue(&server, "sleep", r#"{"seconds":600}"#).await;
    reach(&server, &long, "running").await;
    let began = Instant::now();
    let status = loop {
        terminate(&worker.0);
        tokio::time::sleep(Duration::from_millis(300)).await;
        if let Some(status) = worker.0.try_wait().expect("it is ours") {
            break status;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it should have ended");
    };
    assert_eq!(status.code(), Some(128 + 15));
}

/// Idle, and while it lets a job end: from its goodbye on nobody says that it is about to start anything.
async fn the_example_worker_says_goodbye_and_why_knows_at_once(store: Store) {
    let server = Server::start(&store);
    let worker = Worker::start(&server, "60");
    let echo = enqueue(&server, "echo", "{}").await;
    reach(&server, &echo, "succeeded").await;
    worker.stop();
    let next = enqueue(&server, "echo", "{}").await;
    let reasons = reasons(&server, &next).await;
    assert_eq!(reasons[0]["reason"], "no_worker_for_kind", "{reasons}");
    let worker = Worker::start(&server, "60");
    reach(&server, &next, "succeeded").await;
    let short = enqueue(&server, "sleep", r#"{"seconds":20}"#).await;
    reach(&server, &short, "running").await;
    terminate(&worker.0);
    let next = enqueue(&server, "echo", "{}").await;
    until_reason(&server, &next, "no_worker_for_kind").await;
    let job = server.get(&format!("/api/v1/jobs/{short}")).await.ok().json();
    assert_eq!(job["state"], "running", "a goodbye does nothing to what is held: {job}");
    worker.end_within(Duration::from_secs(60));
    reach(&server, &short, "succeeded").await;
    assert!(server.stop().success());
    store.check();
}

/// Idle, and with a job in hand: nobody is told that a worker has room soon.
async fn why_tells_when_the_example_worker_was_last_seen_after_it_was_killed(store: Store) {
    for is_busy in [false, true] {
        let server = Server::start(&store);
        let mut worker = Worker::start(&server, "60");
        let kind = if is_busy { "sleep" } else { "echo" };
        let state = if is_busy { "running" } else { "succeeded" };
        let first = enqueue(&server, kind, r#"{"seconds":600}"#).await;
        reach(&server, &first, state).await;
        worker.0.kill().expect("it runs");
        worker.0.wait().expect("it is ours");
        let next = enqueue(&server, "echo", "{}").await;
        let reason = until_reason(&server, &next, "workers_silent").await;
        assert_eq!((&reason["kind"], &reason["queue"]), (&"echo".into(), &"default".into()));
        assert!(reason["worker"].as_str().is_some_and(|it| it.starts_with("py-")), "{reason}");
        assert!(reason["last_seen_at"].is_string(), "{reason}");
        let why = server.get(&format!("/api/v1/jobs/{next}/why")).await.ok().json();
        let text = why["text"].as_str().expect("it is text");
        assert!(
            text.contains("the last worker that runs kind echo in queue default, py-"),
            "{text}"
        );
        assert!(!text.contains("when a worker has room"), "{text}");
        server.post(&format!("/api/v1/jobs/{next}/cancel"), "").await.ok();
        assert!(server.stop().success());
    }
}

async fn reasons(server: &Server, id: &str) -> serde_json::Value {
    server.get(&format!("/api/v1/jobs/{id}/why")).await.ok().json()["reasons"].take()
}

/// Waits until this is the first reason, for no longer than half of the time that a silent worker is believed.
async fn until_reason(server: &Server, id: &str, reason: &str) -> serde_json::Value {
    let began = Instant::now();
    loop {
        let mut reasons = reasons(server, id).await;
        if reasons[0]["reason"] == reason {
            return reasons[0].take();
        }
        assert!(began.elapsed() < Duration::from_secs(45), "it should be {reason}: {reasons}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn enqueue(server: &Server, kind: &str, payload: &str) -> String {
    let retry = r#""max_retries":1,"retry":{"base_ms":1,"max_backoff_ms":1}"#;
    let body = format!(r#"{{"kind":"{kind}","payload":{payload},{retry}}}"#);
    server.post("/api/v1/jobs", &body).await.ok().at("/job/job_id")
}

/// Waits until the job is in this state.
async fn reach(server: &Server, id: &str, state: &str) -> serde_json::Value {
    loop {
        let job = server.get(&format!("/api/v1/jobs/{id}")).await.ok().json();
        if job["state"] == state {
            return job;
        }
        assert_eq!(job["finished_at"], serde_json::Value::Null, "it should be {state}: {job}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A running worker. Dropping it kills it.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, grace: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/worker.py");
        let mut python = Command::new("python3");
        python.arg(script).args(["--url", &server.url("")]);
        python.args(["--lease-ms", "1500", "--slots", "6", "--grace", grace]);
        Self(python.spawn().expect("python3 is installed: the example needs it"))
    }

    /// Asks it to stop. It ends well.
    fn stop(self) {
        self.stop_within(Duration::from_secs(60));
    }

    fn stop_within(self, most: Duration) {
        terminate(&self.0);
        self.end_within(most);
    }

    /// It was asked to stop, and ends well.
    fn end_within(mut self, most: Duration) {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(began.elapsed() < most, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
