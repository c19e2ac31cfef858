//! The worker in `examples/worker.py` keeps its promises.

use std::{
    path::Path,
    process::{Child, Command},
    time::Duration,
};

use crate::{
    on_both_stores,
    server::{Server, Store, terminate},
};

on_both_stores!(the_example_worker_runs_retries_cancels_and_ends_in_good_order);

async fn the_example_worker_runs_retries_cancels_and_ends_in_good_order(store: Store) {
    let server = Server::start(&store);
    let worker = Worker::start(&server, "2");
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

    fn stop(mut self) {
        terminate(&self.0);
        let status = self.0.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
