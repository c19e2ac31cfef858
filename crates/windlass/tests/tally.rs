//! What an engine has written is counted, and what was answered from the record is not.

use std::time::Duration;

use windlass::{Engine, HandlerResult, JobRequest};

#[tokio::test]
async fn what_was_written_is_counted_once() {
    let engine = Engine::open("sqlite::memory:").await.unwrap();
    let flaky = |payload: u32, context: windlass::Context| async move {
        match (payload, context.retry_count()) {
            (0, _) | (1, 1..) => HandlerResult::Ok(()),
            (1, _) => Err("not yet".into()),
            _ => Err(windlass::Failure::permanent("NEVER", "it cannot be done").into()),
        }
    };
    let worker = engine.worker().handle_kind("flaky", flaky).start().await.unwrap();
    let mut jobs = Vec::new();
    for payload in 0..3u32 {
        let wait = Duration::from_millis(1);
        let request = || {
            let request = JobRequest::of("flaky", &payload).backoff(wait, wait);
            request.key(&payload.to_string())
        };
        jobs.push(engine.enqueue(request()).await.unwrap().id);
        assert!(engine.enqueue(request()).await.unwrap().idempotent_hit);
    }
    for job in jobs {
        engine.wait(job).await.unwrap();
    }
    worker.shutdown().await.unwrap();
    let tallied = engine.tally();
    assert_eq!((tallied.enqueued, tallied.started), (3, 4));
    assert_eq!((tallied.succeeded, tallied.retried, tallied.failed), (2, 1, 1));
    assert_eq!((tallied.cancelled, tallied.interrupted), (0, 0));
    assert_eq!(tallied.started_by_queue["default"], 4);
}
