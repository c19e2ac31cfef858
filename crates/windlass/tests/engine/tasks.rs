//! Contract `tasks`, end to end: what its document promises, and the documents themselves, field for field.

use std::time::Duration;

use windlass::{Context, Engine, HandlerResult, JobId, Outcome, Scope, SubmitError, Worker};
use windlass_kernel::{
    Answer, Payload,
    contract::tasks::{self, CreateTask, TaskAnswer, TaskDocument},
};

use crate::common::{enqueue_new, in_whole_seconds, steady_engine};

/// The request of the document, for two seconds after a test begins.
const REQUEST: &str = r#"{
  "task_id": "task_20260225_0001",
  "schedule_type": "at",
  "scheduled_at": "2026-01-01T00:00:02Z",
  "timeout_ms": 30000,
  "max_retries": 2,
  "idempotency_key": "order_1001",
  "idempotency_scope": "tenant_a",
  "payload": {
    "channel": "dingtalk",
    "request_id": "req-1"
  }
}"#;

/// Creates a task, and gives back its job with the answer as the contract has it.
async fn create(engine: &Engine, request: &str) -> Result<(JobId, String), SubmitError> {
    let request: CreateTask = serde_json::from_str(request).unwrap();
    let new = request.into_new_job(Payload::MAX_BYTES_DEFAULT).unwrap();
    let Answer { job_id, recorded, .. } = enqueue_new(engine, new).await?;
    let task = TaskDocument::new(&engine.job(job_id).await.unwrap());
    let answer = TaskAnswer { idempotent_hit: recorded, task };
    Ok((job_id, serde_json::to_string_pretty(&answer).unwrap()))
}

/// A task as the contract has it.
async fn task(engine: &Engine, id: JobId) -> String {
    let document = TaskDocument::new(&engine.job(id).await.unwrap());
    in_whole_seconds(&serde_json::to_string_pretty(&document).unwrap())
}

/// Every event of the only task of the store, as the contract has it.
async fn events(engine: &Engine, id: JobId) -> Vec<String> {
    let spec = engine.job(id).await.unwrap().spec;
    let events = engine.store().events(&Scope::Every, id).await.unwrap();
    let feed = engine.own_store().unwrap().feed(&Scope::Every, 0, 1_000).await.unwrap();
    assert_eq!(events.len(), feed.events.len(), "there is one task");
    let told = events.iter().zip(feed.events);
    let told = told.filter_map(|(event, row)| tasks::tell(event, &spec, row.number));
    told.map(|event| in_whole_seconds(&serde_json::to_string_pretty(&event).unwrap())).collect()
}

/// Each step of a task: from, to, attempt, code and words.
async fn steps(engine: &Engine, id: JobId) -> Vec<String> {
    let spec = engine.job(id).await.unwrap().spec;
    let events = engine.store().events(&Scope::Every, id).await.unwrap();
    let told = events.iter().filter_map(|event| tasks::tell(event, &spec, 1));
    let line = |it: tasks::TaskStateChanged| {
        let (code, words) = (it.reason_code, it.reason_message);
        let words = [code.map(str::to_owned), words].into_iter().flatten().collect::<Vec<_>>();
        let from = it.from_state.unwrap_or("new");
        format!("{from} -> {} at {} {}", it.to_state, it.attempt, words.join(": "))
    };
    told.map(|event| line(event.payload).trim_end().to_owned()).collect()
}

/// A worker whose handler does what the payload says, such as `{"do": "fail"}`.
async fn work(engine: &Engine) -> HandlerResult<Worker> {
    let act = async |payload: serde_json::Value, context: Context| -> HandlerResult<Outcome> {
        match payload["do"].as_str() {
            Some("fail") => Err("it failed".into()),
            Some("fail once") if context.attempt() == 1 => Err("not yet".into()),
            Some("fail for good") => {
                Err(windlass::Failure::permanent("GONE", "no such channel").into())
            }
            Some("clean up") => {
                context.stopped().await;
                Ok(Outcome::cancelled("cleaned up".to_owned()))
            }
            Some(_) => Ok(Outcome::done(&"sent")),
            // The request of the document.
            None => std::future::pending().await,
        }
    };
    Ok(engine.worker().handle_kind("default", act).start().await?)
}

fn doing(what: &str) -> String {
    format!(r#"{{"payload": {{"do": "{what}"}}, "max_retries": 1}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_task_that_times_out_is_tried_until_its_retries_are_used_up() -> HandlerResult {
    let engine = steady_engine();
    let worker = work(&engine).await?;
    let (id, created) = create(&engine, REQUEST).await?;
    let expected = r#"{
  "idempotent_hit": false,
  "task": {
    "task_id": "task_20260225_0001",
    "schedule_type": "at",
    "state": "pending",
    "attempt": 1,
    "max_retries": 2,
    "timeout_ms": 30000,
    "idempotency_key": "order_1001",
    "last_error_code": null,
    "last_error_reason": null,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "started_at": null,
    "finished_at": null
  }
}"#;
    assert_eq!(created, expected);
    engine.wait(id).await?;
    // It starts at 2 s, 33 s and 65 s, and each attempt has 30 s.
    let expected = r#"{
  "task_id": "task_20260225_0001",
  "schedule_type": "at",
  "state": "failed",
  "attempt": 3,
  "max_retries": 2,
  "timeout_ms": 30000,
  "idempotency_key": "order_1001",
  "last_error_code": "TASK_RETRY_EXHAUSTED",
  "last_error_reason": "start_to_close timeout exhausted retries",
  "created_at": "2026-01-01T00:00:00Z",
  "updated_at": "2026-01-01T00:01:35Z",
  "started_at": "2026-01-01T00:00:02Z",
  "finished_at": "2026-01-01T00:01:35Z"
}"#;
    assert_eq!(task(&engine, id).await, expected);
    let expected = [
        "new -> pending at 1",
        "pending -> ready at 1",
        "ready -> running at 1",
        "running -> ready at 1 TASK_TIMEOUT: start_to_close timeout",
        "ready -> running at 2",
        "running -> ready at 2 TASK_TIMEOUT: start_to_close timeout",
        "ready -> running at 3",
        "running -> failed at 3 TASK_RETRY_EXHAUSTED: start_to_close timeout exhausted retries",
    ];
    assert_eq!(steps(&engine, id).await, expected);
    let last = events(&engine, id).await.pop().unwrap();
    let expected = r#"{
  "type": "task_state_changed",
  "source": "gateway.scheduler",
  "session_key": "scheduler:default",
  "event_id": "evt_task_13",
  "payload": {
    "task_id": "task_20260225_0001",
    "from_state": "running",
    "to_state": "failed",
    "occurred_at": "2026-01-01T00:01:35Z",
    "attempt": 3,
    "reason_code": "TASK_RETRY_EXHAUSTED",
    "reason_message": "start_to_close timeout exhausted retries",
    "idempotent_hit": false
  }
}"#;
    assert_eq!(last, expected);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_or_not_and_keeps_its_words() -> HandlerResult {
    let engine = steady_engine();
    let worker = work(&engine).await?;
    for (what, expected) in [
        (
            "fail",
            &[
                "running -> ready at 1 TASK_EXECUTION_FAILED: HANDLER_FAILED: it failed",
                "ready -> running at 2",
                "running -> failed at 2 TASK_RETRY_EXHAUSTED: HANDLER_FAILED: it failed exhausted \
                 retries",
            ][..],
        ),
        (
            "fail once",
            &[
                "running -> ready at 1 TASK_EXECUTION_FAILED: HANDLER_FAILED: not yet",
                "ready -> running at 2",
                "running -> succeeded at 2",
            ],
        ),
        ("fail for good", &["running -> failed at 1 TASK_EXECUTION_FAILED: GONE: no such channel"]),
    ] {
        let (id, _) = create(&engine, &doing(what)).await?;
        engine.wait(id).await?;
        let told = steps(&engine, id).await;
        assert_eq!(told[..2], ["new -> ready at 1", "ready -> running at 1"]);
        assert_eq!(told[2..], *expected, "{what}");
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_task_can_be_cancelled_in_every_state_but_an_end() -> HandlerResult {
    let engine = steady_engine();
    let cancel = async |id: JobId| {
        let reason = Some("not needed".to_owned());
        engine.cancel_with(id, Duration::from_secs(5), reason).await
    };
    let last = async |id: JobId| steps(&engine, id).await.pop().unwrap();
    let (pending, _) = create(&engine, REQUEST).await?;
    cancel(pending).await?;
    assert_eq!(last(pending).await, "pending -> cancelled at 1 not needed");
    let (ready, _) = create(&engine, &doing("nothing")).await?;
    cancel(ready).await?;
    assert_eq!(last(ready).await, "ready -> cancelled at 1 not needed");

    let worker = work(&engine).await?;
    for (what, expected) in [
        // The last word is the handler's.
        ("clean up", "running -> cancelled at 1 cleaned up"),
        // It waits for its retry.
        ("fail", "ready -> cancelled at 1 not needed"),
    ] {
        let (id, _) = create(&engine, &doing(what)).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        cancel(id).await?;
        engine.wait(id).await?;
        assert_eq!(last(id).await, expected, "{what}");
    }
    // One that does not listen is cancelled all the same.
    let (deaf, _) = create(&engine, r#"{"payload": {}}"#).await?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    cancel(deaf).await?;
    engine.wait(deaf).await?;
    assert_eq!(last(deaf).await, "running -> cancelled at 1 not needed");

    for what in ["nothing", "fail for good"] {
        let (id, _) = create(&engine, &doing(what)).await?;
        engine.wait(id).await?;
        let before = engine.store().events(&Scope::Every, id).await?;
        let Err(windlass::Error::Refused(refusal)) = cancel(id).await else {
            panic!("an end was left")
        };
        assert_eq!(tasks::CONTRACT.code(&refusal), "TASK_INVALID_TRANSITION");
        assert_eq!(engine.store().events(&Scope::Every, id).await?, before, "nothing has changed");
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_same_request_again_is_a_hit_and_creates_nothing() -> HandlerResult {
    let engine = steady_engine();
    let now = REQUEST.replace("00:00:02Z", "00:00:00Z");
    let (id, _) = create(&engine, &now).await?;
    let (again, hit) = create(&engine, &now).await?;
    let expected = r#"{
  "idempotent_hit": true,
  "task": {
    "task_id": "task_20260225_0001",
    "schedule_type": "at",
    "state": "ready",
    "attempt": 1,
    "max_retries": 2,
    "timeout_ms": 30000,
    "idempotency_key": "order_1001",
    "last_error_code": null,
    "last_error_reason": null,
    "created_at": "2026-01-01T00:00:00Z",
    "updated_at": "2026-01-01T00:00:00Z",
    "started_at": null,
    "finished_at": null
  }
}"#;
    assert_eq!((again, hit.as_str()), (id, expected));
    // How urgent it is, its labels and its trace make no other request of it, and it may be at its end.
    engine.cancel_with(id, Duration::ZERO, None).await?;
    let more = r#"{"priority": 5, "tags": ["red"], "trace_id": "trace", "task_id""#;
    let (again, hit) = create(&engine, &now.replacen("{\n  \"task_id\"", more, 1)).await?;
    assert_eq!(again, id);
    assert!(hit.contains(r#""idempotent_hit": true"#) && hit.contains(r#""state": "cancelled""#));
    assert_eq!(
        engine.own_store().unwrap().feed(&Scope::Every, 0, 1_000).await?.events.len(),
        2,
        "created and cancelled"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_same_key_with_other_fields_is_a_duplicate_that_names_them() -> HandlerResult {
    let engine = steady_engine();
    let (id, _) = create(&engine, REQUEST).await?;
    let check = async |from: &str, to: &str, field: &str| {
        let other = REQUEST.replacen(from, to, 1);
        assert_ne!(other, REQUEST, "{from}");
        let Err(SubmitError::Refused(refusal)) = create(&engine, &other).await else {
            panic!("{to} was taken")
        };
        assert_eq!(tasks::CONTRACT.code(&refusal), "TASK_DUPLICATE");
        assert!(refusal.to_string().contains(field), "{refusal} does not name {field}");
    };
    check("task_20260225_0001", "task_2", "task_id").await;
    check("00:00:02Z", "00:00:03Z", "scheduled_at").await;
    check("30000", "30001", "timeout_ms").await;
    check(r#""max_retries": 2"#, r#""max_retries": 3"#, "max_retries").await;
    check("req-1", "req-2", "payload").await;
    check(r#""payload""#, r#""kind": "mail", "payload""#, "kind").await;
    check(r#""payload""#, r#""queue": "slow", "payload""#, "queue").await;
    check(r#""payload""#, r#""retry": {"base_ms": 7}, "payload""#, "retry").await;
    // A known task under another key, and under none.
    check("order_1001", "order_1002", "task_20260225_0001").await;
    check(r#""tenant_a""#, r#""tenant_b""#, "task_20260225_0001").await;
    assert_eq!(engine.store().events(&Scope::Every, id).await?.len(), 1);
    assert_eq!(engine.own_store().unwrap().open_jobs().await?.len(), 1);
    Ok(())
}
