//! What came of steps is delivered one at a time, in the order of the records, in the first run and in every replay.

use std::{future::IntoFuture as _, time::Duration};

use serde_json::json;
use windlass::{HandlerResult, State};

use super::common::{Outside, Run, does, engine, handler};

#[tokio::test(start_paused = true)]
async fn steps_run_side_by_side_and_their_order_is_kept() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            let slow = ctx.step("slow", |_| async {
                outside.note("slow");
                tokio::time::sleep(Duration::from_millis(50)).await;
                Ok::<_, windlass::BoxError>("slow".to_owned())
            });
            let fast = ctx.step("fast", |_| async {
                outside.note("fast");
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok::<_, windlass::BoxError>("fast".to_owned())
            });
            let (slow, fast) = (slow.idempotent().into_future(), fast.idempotent().into_future());
            tokio::pin!(slow, fast);
            let first: String = tokio::select! {
                biased;
                it = &mut slow => it?,
                it = &mut fast => it?,
            };
            // In a replay both are on record, and the one that was first still is.
            let second: String = if first == "fast" { slow.await? } else { fast.await? };
            if outside.note("try") < 3 {
                return Err("again".into());
            }
            Ok(json!([first, second]))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!(["fast", "slow"]));
    assert_eq!((outside.count("slow"), outside.count("fast")), (1, 1));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_once_step_that_nobody_waits_for_comes_to_its_record() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            let inner = outside.clone();
            let loser = ctx.step("loser", move |_| {
                let outside = inner.clone();
                async move {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    outside.note("loser");
                    Ok::<_, windlass::BoxError>(1)
                }
            });
            let winner = ctx.step("winner", |_| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok::<_, windlass::BoxError>(2)
            });
            let won = tokio::select! {
                it = loser.once() => it?,
                it = winner.idempotent() => it?,
            };
            if outside.note("try") < 2 {
                return Err("again".into());
            }
            Ok(json!(won))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!((ended.job.state, ended.result::<u32>()?), (State::Succeeded, 2));
    assert_eq!(outside.count("loser"), 1);
    assert_eq!(ended.job.ledger.recorded, 2);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn many_steps_at_once_have_their_own_keys() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            let mut results = Vec::new();
            for round in 0..5 {
                let (a, b, c) = tokio::join!(
                    ctx.step("a", does(&outside, "a", round)).pure(),
                    ctx.step("a", does(&outside, "a", round + 100)).idempotent(),
                    ctx.step("a", does(&outside, "a", round + 1000)).once(),
                );
                results.push(a? + b? + c?);
            }
            if outside.note("try") < 2 {
                return Err("again".into());
            }
            Ok(json!(results))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<Vec<u32>>()?, [1100, 1103, 1106, 1109, 1112]);
    assert_eq!(outside.count("a"), 15);
    worker.shutdown().await?;
    Ok(())
}
