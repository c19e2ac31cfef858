//! What a caller can say about a job, and what is refused.

use std::time::Duration;

use windlass::{
    Engine, Error, HandlerResult, JobRequest, Refusal, Scope, State, Work, job, testing,
};

use crate::common::{Do, act};

#[tokio::test(start_paused = true)]
async fn everything_that_is_said_is_kept() -> HandlerResult {
    let engine = testing::engine()?.tenant("acme")?.acting_as("ann")?;
    let second = Duration::from_secs(1);
    let request = job(Do::succeed())
        .queue("slow")
        .priority(-5)
        .after(second * 60)
        .timeout(second * 5)
        .heartbeat_timeout(second * 2)
        .schedule_to_start(second * 120)
        .deadline("2026-01-02T00:00:00Z".parse()?)
        .max_retries(7)
        .backoff(second, second * 9)
        .max_interruptions(2)
        .key_scope("orders")
        .key("order-1")
        .task_id("task-1")
        .tag("red")
        .tag("green")
        .trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let id = engine.enqueue(request).await?.id;
    let found = engine.job(id).await?;
    let spec = &found.spec;
    assert_eq!(found.state, State::Scheduled);
    assert_eq!(
        (spec.tenant.as_str(), spec.queue.as_str(), spec.kind.as_str()),
        ("acme", "slow", "do")
    );
    assert_eq!(spec.priority.0, -5);
    assert_eq!(spec.due_at.since(spec.created_at), second * 60);
    assert_eq!((spec.timeout, spec.heartbeat_timeout), (Some(second * 5), Some(second * 2)));
    assert_eq!(spec.schedule_to_start, Some(second * 120));
    assert_eq!(spec.deadline_at, Some("2026-01-02T00:00:00Z".parse()?));
    assert_eq!((spec.max_retries, spec.max_interruptions), (7, 2));
    assert_eq!((spec.retry.base, spec.retry.max_backoff), (second, second * 9));
    assert_eq!(
        (spec.idempotency_scope.as_str(), spec.idempotency_key.as_str()),
        ("orders", "order-1")
    );
    assert_eq!(spec.task_id.as_str(), "task-1");
    assert_eq!(spec.tags, ["red".parse()?, "green".parse()?]);
    assert!(spec.trace_id.as_str().starts_with("00-0af7"));
    let created = &engine.store().events(&Scope::Every, id).await?[0];
    assert_eq!(created.actor.to_string(), "user:ann");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_bad_value_is_refused_by_name_and_nothing_is_written() -> HandlerResult {
    let engine = testing::engine()?;
    for (request, field) in [
        (job(Do::succeed()).queue(""), "queue"),
        (job(Do::succeed()).priority(1001), "priority"),
        (job(Do::succeed()).timeout(Duration::ZERO), "timeout_ms"),
        (job(Do::succeed()).max_retries(10_001), "max_retries"),
        (job(Do::succeed()).key("a\nb"), "idempotency_key"),
        (job(Do::succeed()).key("a").key_scope("_runs"), "idempotency_scope"),
        (job(Do::succeed()).tag(&"x".repeat(129)), "tag"),
        (JobRequest::raw("do", "{"), "payload"),
        (JobRequest::raw("", "1"), "kind"),
    ] {
        match engine.enqueue(request).await {
            Err(Error::Refused(Refusal::Invalid { field: found, .. })) => assert_eq!(found, field),
            other => panic!("{field}: {other:?}"),
        }
    }
    assert!(engine.own_store().unwrap().open_jobs().await?.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_bad_request_of_many_does_not_concern_the_others() -> HandlerResult {
    let engine = testing::engine()?;
    let requests = [job(Do::succeed()), job(Do::succeed()).queue(""), job(Do::succeed())];
    let answers = engine.enqueue_all(requests).await;
    let fine: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(fine, [true, false, true]);
    assert_eq!(engine.own_store().unwrap().open_jobs().await?.len(), 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_same_id_again_is_the_same_job() -> HandlerResult {
    let engine = testing::engine()?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    let again = engine.enqueue(job(Do::succeed()).id(id)).await?;
    assert_eq!((again.id, again.idempotent_hit), (id, true));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_job_of_another_tenant_is_not_found() -> HandlerResult {
    let engine = testing::engine()?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    let other = engine.tenant("other")?;
    assert!(matches!(other.job(id).await, Err(Error::NoJob(_))));
    assert!(matches!(other.wait(id).await, Err(Error::NoJob(_))));
    assert!(matches!(other.cancel(id).await, Err(Error::Refused(Refusal::NotFound { .. }))));
    assert_eq!(engine.job(id).await?.state, State::Queued);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_kind_has_its_own_usual_values() -> HandlerResult {
    #[derive(serde::Serialize, serde::Deserialize)]
    struct Slow;
    impl Work for Slow {
        const KIND: &str = "slow";
        fn defaults(request: JobRequest) -> JobRequest {
            request.queue("slow").max_retries(9)
        }
    }
    let engine = testing::engine()?;
    let id = engine.enqueue(job(Slow).max_retries(1)).await?.id;
    let spec = engine.job(id).await?.spec;
    assert_eq!((spec.queue.as_str(), spec.max_retries), ("slow", 1));
    Ok(())
}

#[tokio::test]
async fn an_address_that_is_none_is_refused_without_its_password() {
    let of_server = match cfg!(feature = "client") {
        true => "the token goes into Config.token",
        false => "add the feature `client`",
    };
    for (url, says) in [
        ("mysql://ann:secret@db/x", "it begins with sqlite:, postgres:// or http://"),
        ("windlass.db", "it begins with sqlite:, postgres:// or http://"),
        ("sqlite:", "the name of a file is missing"),
        ("http://ann:secret@db", of_server),
    ] {
        let error = Engine::open(url).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_runs_again_once_by_its_name_or_by_its_letter() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(job(Do::FailForGood).task_id("t")).await?.id;
    let letter = engine.wait(id).await?.job.dlq_id.unwrap();
    let again = engine.rerun(id).await?;
    let ended = engine.wait(again.id).await?.job;
    assert_eq!((ended.spec.task_id.as_str(), ended.attempt), ("t", 2));
    // The re-run has taken over the letter of the first; that of the second is open.
    for refused in [engine.requeue(letter).await, engine.rerun(id).await] {
        let refused = refused.unwrap_err();
        assert!(matches!(refused, Error::Refused(Refusal::DlqRequeueConflict { .. })), "{refused}");
    }
    let requeued = engine.requeue(ended.dlq_id.unwrap()).await?;
    assert_ne!(requeued.id, again.id);
    let ended = engine.wait(requeued.id).await?.job;
    assert_eq!((ended.spec.task_id.as_str(), ended.attempt), ("t", 3));
    worker.shutdown().await?;
    Ok(())
}
