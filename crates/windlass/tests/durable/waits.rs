//! Waits: time, signals, messages and children. A job that waits holds nothing.

use std::time::Duration;

use serde_json::json;
use windlass::{HandlerResult, State, durable::StepError};
use windlass_kernel::{
    Failure, Payload,
    ids::{Channel, MessageId},
    ledger::{MailContent, MailName},
};

use super::common::{Outside, Run, causes, deliver, does, engine, handler, send};

/// Long enough that the job is parked, and not so long that a test which skips through it takes long.
const DAY: Duration = Duration::from_secs(24 * 60);

#[tokio::test(start_paused = true)]
async fn a_signal_ends_a_wait_and_the_job_holds_nothing_meanwhile() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            ctx.step("before", does(&outside, "before", 1)).once().await?;
            let paid: u32 = ctx.signal("paid").await?;
            ctx.step("after", does(&outside, "after", 2)).once().await?;
            Ok(json!(paid))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    let parked = loop {
        let job = engine.job(job.id).await?;
        if job.state == State::Waiting {
            break job;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(parked.lease.is_none());
    assert_eq!(parked.wait.unwrap().on.to_string(), "signal paid");
    tokio::time::sleep(DAY).await;
    send(&engine, job.id, "paid", "42").await;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<u32>()?, 42);
    assert_eq!(["before", "after"].map(|what| outside.count(what)), [1, 1]);
    let waits = causes(&engine, job.id).await.into_iter().filter(|cause| cause.contains("wait"));
    assert_eq!(waits.collect::<Vec<_>>(), ["job_waiting", "wait_completed"]);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_signal_that_came_early_is_there_and_one_that_does_not_come_times_out() -> HandlerResult {
    let engine = engine();
    let run = handler(move |ctx, _| {
        Box::pin(async move {
            let early: String = ctx.signal("early").await?;
            let again: String = ctx.signal("early").await?;
            let late = ctx.signal::<u32>("late").within(DAY).await;
            let rejected = ctx.signal::<u32>("rejected").await;
            let Err(StepError::Rejected(failure)) = rejected else { panic!("{rejected:?}") };
            Ok(json!([early, again, late == Err(StepError::TimedOut), failure.code]))
        })
    });
    let job = engine.enqueue(Run(0)).await?;
    send(&engine, job.id, "early", "\"bird\"").await;
    let no = MailContent::Rejected(Failure::permanent("NO", "never"));
    let name = MailName::Signal("rejected".parse()?);
    deliver(&engine, job.id, name, no).await;
    let worker = engine.worker().durable(run).start().await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!(["bird", "bird", true, "NO"]));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn messages_are_taken_in_their_order_each_once() -> HandlerResult {
    let engine = engine();
    let run = handler(move |ctx, Run(count)| {
        Box::pin(async move {
            let mut got = Vec::new();
            for _ in 0..count {
                got.push(ctx.recv::<u32>("chat").await?);
            }
            Ok(json!(got))
        })
    });
    let job = engine.enqueue(Run(6)).await?;
    let message = |number: u32| {
        let id = MessageId::new(format!("m{number}")).unwrap();
        let name = MailName::Message { channel: Channel::new("chat").unwrap(), id };
        (name, MailContent::Payload(Payload::parse(&number.to_string(), 10).unwrap()))
    };
    for number in [1, 2] {
        let (name, content) = message(number);
        deliver(&engine, job.id, name, content).await;
    }
    let worker = engine.worker().durable(run).start().await?;
    for number in [3, 4, 4, 5, 6] {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let (name, content) = message(number);
        deliver(&engine, job.id, name, content).await;
    }
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<Vec<u32>>()?, [1, 2, 3, 4, 5, 6]);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_sleep_takes_its_time_and_a_race_with_it_has_one_winner() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, Run(number)| {
        let outside = seen.clone();
        Box::pin(async move {
            let began = ctx.now();
            ctx.sleep(DAY * 3).await?;
            let slept = ctx.now().since(began).as_secs() / 60;
            let won = tokio::select! {
                biased;
                it = ctx.signal::<String>("go") => it?,
                it = ctx.sleep(DAY) => { it?; "time".to_owned() }
            };
            if outside.note(&format!("try {number}")) < 2 {
                return Err("again".into());
            }
            Ok(json!([slept, won]))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let alone = engine.enqueue(Run(0)).await?;
    let told = engine.enqueue(Run(1)).await?;
    tokio::time::sleep(DAY * 3 + DAY / 2).await;
    send(&engine, told.id, "go", "\"signal\"").await;
    let ended = engine.wait(told.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!([72, "signal"]));
    let ended = engine.wait(alone.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!([72, "time"]));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_signal_reaches_a_handler_that_does_something_else_as_well() -> HandlerResult {
    let engine = engine();
    let run = handler(move |ctx, _| {
        Box::pin(async move {
            let won = tokio::select! {
                it = ctx.signal::<String>("stop") => it?,
                it = ctx.step("long", |_| async {
                    tokio::time::sleep(Duration::from_secs(600)).await;
                    Ok::<_, windlass::BoxError>("long".to_owned())
                }).idempotent() => it?,
            };
            Ok(json!(won))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.job(job.id).await?.state, State::Running);
    send(&engine, job.id, "stop", "\"stopped\"").await;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<String>()?, "stopped");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn children_give_their_results_and_one_slot_is_enough() -> HandlerResult {
    let engine = engine();
    let run = handler(move |ctx, Run(number)| {
        Box::pin(async move {
            if number == 0 {
                return Ok(json!(1));
            }
            if number == 100 {
                return Err(Failure::permanent("BROKEN", "it never works").into());
            }
            let one: u32 = ctx.child(Run(number - 1)).await?;
            let (two, broken) = tokio::join!(
                ctx.child::<u32>(Run(0)),
                ctx.child::<u32>(windlass::job(Run(100)).max_retries(0)),
            );
            let broken = broken.expect_err("it is broken").to_string();
            assert!(broken.contains("BROKEN"), "{broken}");
            Ok(json!(one + two?))
        })
    });
    let worker = engine.worker().durable(run).concurrency(1).start().await?;
    let job = engine.enqueue(Run(3)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<u32>()?, 4);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_cancel_reaches_the_handler_where_it_waits() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            ctx.step("a", does(&outside, "a", 1)).once().await?;
            let waited = ctx.signal::<u32>("never").await;
            assert_eq!(waited, Err(StepError::Cancelled));
            ctx.shield().step("undo", does(&outside, "undo", 1)).once().await?;
            Err(StepError::Cancelled.into())
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    engine.cancel(job.id).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.job.state, State::Cancelled);
    assert_eq!(["a", "undo"].map(|what| outside.count(what)), [1, 1]);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_where_the_handler_begins_again() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, Run(count)| {
        let outside = seen.clone();
        Box::pin(async move {
            let mut done: u32 = ctx.state()?.unwrap_or_default();
            while done < count {
                ctx.step("page", does(&outside, "page", done)).idempotent().await?;
                done += 1;
                ctx.checkpoint(&done).await?;
                if done == 3 && outside.note("try") < 2 {
                    return Err("again".into());
                }
            }
            Ok(json!([done, ctx.random() == ctx.random()]))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(5)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!([5, false]));
    assert_eq!(outside.count("page"), 5);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_version_is_the_one_that_the_job_began_with() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let make = |newest: u32| {
        let seen = outside.clone();
        handler(move |ctx, _| {
            let outside = seen.clone();
            Box::pin(async move {
                let version = ctx.version("fee", 1..=newest).await?;
                if outside.note("try") < 2 {
                    ctx.signal::<u32>("go").await?;
                }
                Ok(json!(version))
            })
        })
    };
    let first = engine.worker().durable(make(1)).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.shutdown().await?;
    send(&engine, job.id, "go", "1").await;
    let second = engine.worker().durable(make(2)).start().await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!((ended.job.state, ended.result::<u32>()?), (State::Succeeded, 1));
    second.shutdown().await?;
    Ok(())
}
