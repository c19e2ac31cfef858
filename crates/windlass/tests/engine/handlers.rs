//! What a handler gives back decides what becomes of its job.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::Barrier;
use windlass::{
    Context, Error, Failure, HandlerResult, JobRequest, Next, State, Work, job, testing,
};

use crate::common::{Counter, Do, act, path};

#[tokio::test(start_paused = true)]
async fn a_result_comes_back() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let done = engine.enqueue(Do::Succeed("ann".to_owned())).await?;
    let ended = engine.wait(done.id).await?;
    assert!(ended.is_success());
    assert_eq!(ended.result::<String>()?, "ann");
    assert!(matches!(ended.result::<u32>(), Err(Error::Json { .. })));
    assert_eq!(path(&engine, done.id).await, "queued dispatched running succeeded");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_error_is_tried_again_until_retries_are_used_up() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let third = engine.enqueue(Do::FailTimes(2)).await?;
    assert_eq!(engine.wait(third.id).await?.result::<u32>()?, 3);
    let never = engine.enqueue(job(Do::Fail).max_retries(1)).await?;
    let ended = engine.wait(never.id).await?;
    assert_eq!((ended.job.state, ended.job.attempt), (State::Failed, 2));
    assert_eq!(ended.job.error.unwrap().message, "it failed");
    assert!(ended.job.dlq_id.is_some());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failure_for_good_is_not_tried_again() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let gone = engine.enqueue(Do::FailForGood).await?;
    let ended = engine.wait(gone.id).await?;
    assert_eq!((ended.job.state, ended.job.attempt), (State::Failed, 1));
    assert_eq!(ended.job.error.unwrap().code, "GONE");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failure_can_ask_for_a_longer_wait() -> HandlerResult {
    let engine = testing::engine()?;
    const HOUR: Duration = Duration::from_secs(3600);
    let busy = async |_: Do, context: Context| -> HandlerResult {
        match context.attempt() {
            1 => Err(Failure::transient("BUSY", "come back later").retry_after(HOUR).into()),
            _ => Ok(()),
        }
    };
    let worker = engine.worker().handle(busy).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    let ended = engine.wait(id).await?.job;
    assert!(ended.finished_at.unwrap().since(ended.spec.created_at) >= HOUR);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_attempt_and_nothing_else() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(1).handle(act).start().await?;
    let panics = engine.enqueue(job(Do::Panic).max_retries(1)).await?;
    let neighbour = engine.enqueue(Do::succeed()).await?;
    let ended = engine.wait(panics.id).await?;
    assert_eq!((ended.job.state, ended.job.attempt), (State::Failed, 2));
    let failure = ended.job.error.unwrap();
    assert_eq!(
        (failure.code.as_str(), failure.message.as_str()),
        ("HANDLER_PANICKED", "it panicked")
    );
    assert!(engine.wait(neighbour.id).await?.is_success());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_partial_job_is_kept() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(Do::Partial).await?.id;
    let ended = engine.wait(id).await?;
    assert_eq!(ended.job.state, State::Partial);
    assert_eq!(ended.remaining.as_deref(), Some("\"two and three\""));
    assert_eq!(ended.result::<u32>()?, 1);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_snooze_uses_up_no_retry() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(job(Do::SnoozeMs(3_600_000)).max_retries(0)).await?.id;
    let ended = engine.wait(id).await?;
    assert_eq!(ended.result::<u64>()?, 2, "it was claimed twice");
    assert_eq!((ended.job.attempt, ended.job.retry_count), (1, 0));
    let waited = ended.job.finished_at.unwrap().since(ended.job.spec.created_at);
    assert!(waited >= Duration::from_secs(3600) && waited < Duration::from_secs(3602));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_does_not_fit_is_a_dead_letter_at_once() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let payload = r#"{"SleepMs": "a secret"}"#;
    let id = engine.enqueue(windlass::JobRequest::raw(Do::KIND, payload)).await?.id;
    let ended = engine.wait(id).await?;
    assert_eq!((ended.job.state, ended.job.attempt), (State::Failed, 1));
    let error = ended.job.error.unwrap();
    assert_eq!(error.code, "PAYLOAD_UNFIT");
    // Where and what kind, but nothing of what stands there: a message is read by many.
    let why = "$.SleepMs (line 1, column 22): string, expected u64";
    assert_eq!(error.message, format!("the payload is not what the handler takes: {why}"));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn layers_run_around_each_other_in_their_order() -> HandlerResult {
    let engine = testing::engine()?;
    let said = Arc::new(Mutex::new(Vec::new()));
    let layer = |name: &'static str| {
        let said = said.clone();
        move |context: Context, next: Next| {
            let said = said.clone();
            async move {
                said.lock().unwrap().push(format!("{name} begins"));
                let ended = next.run(context).await;
                said.lock().unwrap().push(format!("{name} ends"));
                ended
            }
        }
    };
    let worker =
        engine.worker().layer(layer("outer")).layer(layer("inner")).handle(act).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    engine.wait(id).await?;
    assert_eq!(*said.lock().unwrap(), ["outer begins", "inner begins", "inner ends", "outer ends"]);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_panics_is_a_failure_of_the_attempt() -> HandlerResult {
    let engine = testing::engine()?;
    let layer = |context: Context, next: Next| async move {
        assert!(context.attempt() > 1, "the layer is broken");
        next.run(context).await
    };
    let worker = engine.worker().layer(layer).handle(act).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    let ended = engine.wait(id).await?;
    assert!(ended.is_success() && ended.job.attempt == 2);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn handlers_share_what_the_worker_was_given() -> HandlerResult {
    let engine = testing::engine()?;
    let counter = Arc::new(Counter::default());
    let count = async |_: Do, _: Context, counter: Arc<Counter>| -> HandlerResult<u32> {
        Ok(counter.add())
    };
    let worker =
        engine.worker().state(counter.clone()).concurrency(3).handle(count).start().await?;
    let ids = engine.enqueue_all((0..10).map(|_| Do::succeed())).await;
    for id in ids {
        engine.wait(id?.id).await?;
    }
    assert_eq!(counter.get(), 10);
    worker.shutdown().await?;
    Ok(())
}

/// One claim brings no more bytes than fit into one answer. A worker that has room for more asks again at once.
#[tokio::test(start_paused = true)]
async fn a_worker_fills_its_slots_with_large_jobs_without_waiting() -> HandlerResult {
    const HOUR: Duration = Duration::from_secs(3600);
    let engine = testing::engine()?;
    let all_at_once = Arc::new(Barrier::new(12));
    let wait = async |_: String, _: Context, all: Arc<Barrier>| -> HandlerResult {
        all.wait().await;
        Ok(())
    };
    let text = "x".repeat(1_000_000);
    let ids = engine.enqueue_all((0..12).map(|_| JobRequest::of("large", &text))).await;
    let began = tokio::time::Instant::now();
    let worker = engine.worker().state(all_at_once).concurrency(12).poll(HOUR).lease(HOUR * 10);
    let worker = worker.handle_kind("large", wait).start().await?;
    for id in ids {
        assert!(engine.wait(id?.id).await?.is_success());
    }
    assert!(began.elapsed() < HOUR / 2, "it waited for {:?}", began.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_more_handlers_run_at_once_than_there_are_slots() -> HandlerResult {
    let engine = testing::engine()?;
    // How many run now, and the most that did.
    let gauge = Arc::new(Mutex::new((0_u32, 0_u32)));
    let count = async |_: Do, _: Context, gauge: Arc<Mutex<(u32, u32)>>| -> HandlerResult {
        {
            let mut gauge = gauge.lock().unwrap();
            gauge.0 += 1;
            gauge.1 = gauge.1.max(gauge.0);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        gauge.lock().unwrap().0 -= 1;
        Ok(())
    };
    let worker = engine.worker().state(gauge.clone()).concurrency(7).handle(count).start().await?;
    let ids = engine.enqueue_all((0..100).map(|_| Do::succeed())).await;
    for id in ids {
        assert!(engine.wait(id?.id).await?.is_success());
    }
    assert_eq!(*gauge.lock().unwrap(), (0, 7));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_makes_no_sense_is_refused_with_the_reason() -> HandlerResult {
    let engine = testing::engine()?;
    let said = |error: Error| error.to_string();
    let none = engine.worker().start().await.map(drop).map_err(said);
    assert_eq!(
        none.unwrap_err(),
        "the worker cannot start: it has no handler; give it one with handle()"
    );
    let twice = engine.worker().handle(act).handle(act).start().await.map(drop).map_err(said);
    assert_eq!(twice.unwrap_err(), "the worker cannot start: there are two handlers for do");
    let idle = engine.worker().concurrency(0).handle(act).start().await.map(drop);
    assert!(matches!(idle, Err(Error::Worker(_))));
    let deaf = engine.worker().queues([] as [&str; 0]).handle(act).start().await.map(drop);
    assert!(matches!(deaf, Err(Error::Worker(_))));
    Ok(())
}
