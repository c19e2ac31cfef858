//! Steps: recorded once, replayed without being called.

use std::time::Duration;

use serde_json::json;
use windlass::{
    HandlerResult, JobId, State,
    durable::{NotDone, OnUnknown, Reconciled, StepError, StepRetry},
};
use windlass_kernel::failure::{EFFECT_UNKNOWN, STEP_FAILED};

use super::common::{Outside, Run, causes, does, engine, handler};

#[tokio::test(start_paused = true)]
async fn a_handler_of_steps_of_all_modes_comes_to_its_end() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, Run(number)| {
        let outside = seen.clone();
        Box::pin(async move {
            let price = ctx.step("price", does(&outside, "price", number * 2)).pure().await?;
            let charge = ctx.step("charge", does(&outside, "charge", price + 1)).once().await?;
            let mail =
                ctx.step("mail", does(&outside, "mail", "sent".to_owned())).idempotent().await?;
            Ok(json!([price, charge, mail]))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(20)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!([40, 41, "sent"]));
    for what in ["price", "charge", "mail"] {
        assert_eq!(outside.count(what), 1, "{what}");
    }
    let causes = causes(&engine, job.id).await;
    let committed = causes.iter().filter(|cause| *cause == "command_committed").count();
    assert_eq!(committed, 3, "{causes:?}");
    assert_eq!(ended.job.ledger.recorded, 3);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_retry_keeps_what_succeeded() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            let a = ctx.step("a", does(&outside, "a", 1)).once().await?;
            let b = ctx.step("b", does(&outside, "b", 2)).idempotent().await?;
            if outside.note("try") < 3 {
                return Err("not yet".into());
            }
            let c = ctx.step("c", does(&outside, "c", 3)).pure().await?;
            Ok(json!(a + b + c))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!((ended.result::<u32>()?, ended.job.attempt), (6, 3));
    assert_eq!(["a", "b", "c", "try"].map(|what| outside.count(what)), [1, 1, 1, 3]);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_next_worker_goes_on_where_the_record_ends() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let make = |hangs: bool| {
        let seen = seen.clone();
        handler(move |ctx, _| {
            let outside = seen.clone();
            Box::pin(async move {
                let a = ctx.step("a", does(&outside, "a", 1)).once().await?;
                outside.note("between");
                if hangs {
                    std::future::pending::<()>().await;
                }
                let b = ctx.step("b", does(&outside, "b", 2)).once().await?;
                Ok(json!(a + b))
            })
        })
    };
    let first = engine.worker().durable(make(true)).lease(Duration::from_secs(5)).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    while outside.count("between") == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The record of `a` is written as soon as the handler is at rest.
    tokio::time::sleep(Duration::from_millis(100)).await;
    first.kill();
    let second = engine.worker().durable(make(false)).start().await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<u32>()?, 3);
    assert_eq!(["a", "b", "between"].map(|what| outside.count(what)), [1, 1, 2]);
    second.shutdown().await?;
    Ok(())
}

/// A worker that dies in the middle of a `once` step, and then one that finds it behind the barrier.
async fn behind_the_barrier(
    choice: OnUnknown,
    answer: Option<Reconciled<u32>>,
) -> HandlerResult<(windlass::Ended, Outside)> {
    let (engine, outside) = (engine(), Outside::default());
    let make = |hangs: bool| {
        let (seen, answer) = (outside.clone(), answer.clone());
        handler(move |ctx, _| {
            let (outside, answer) = (seen.clone(), answer.clone());
            Box::pin(async move {
                let inner = outside.clone();
                let charge = ctx
                    .step("charge", move |_| {
                        let outside = inner.clone();
                        async move {
                            outside.note("charge");
                            if hangs {
                                std::future::pending::<()>().await;
                            }
                            Ok::<u32, windlass::BoxError>(7)
                        }
                    })
                    .once()
                    .on_unknown(choice);
                let charge = match answer {
                    Some(answer) => {
                        let asked = outside.clone();
                        let reconcile = move |fx: windlass::durable::Fx| {
                            let (answer, asked) = (answer.clone(), asked.clone());
                            async move {
                                asked.note(fx.key());
                                asked.note("asked");
                                Ok::<_, windlass::BoxError>(answer)
                            }
                        };
                        charge.reconcile(reconcile).await
                    }
                    None => charge.await,
                };
                match charge {
                    Ok(charge) => Ok(json!(charge)),
                    Err(StepError::Unknown(_)) => Ok(json!("unknown")),
                    Err(error) => Err(error.into()),
                }
            })
        })
    };
    let first = engine.worker().durable(make(true)).lease(Duration::from_secs(5)).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    while outside.count("charge") == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    first.kill();
    let second = engine.worker().durable(make(false)).start().await?;
    let ended = wait_or_park(&engine, job.id).await?;
    second.shutdown().await?;
    Ok((ended, outside))
}

/// Waits until the job has ended, or waits for a person.
async fn wait_or_park(engine: &windlass::Engine, id: JobId) -> HandlerResult<windlass::Ended> {
    loop {
        let job = engine.job(id).await?;
        if job.state == State::Waiting {
            return Ok(windlass::Ended { job, result: None, remaining: None });
        }
        if job.state.is_end() {
            return Ok(engine.wait(id).await?);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn behind_the_barrier_nothing_is_run_blindly() -> HandlerResult {
    let (ended, outside) = behind_the_barrier(OnUnknown::DeadLetter, None).await?;
    assert_eq!(ended.job.state, State::Failed);
    assert_eq!(ended.job.error.as_ref().map(|it| it.code.as_str()), Some(EFFECT_UNKNOWN));
    assert_eq!(outside.count("charge"), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn behind_the_barrier_a_person_is_asked_if_the_code_says_so() -> HandlerResult {
    let (ended, outside) = behind_the_barrier(OnUnknown::Ask, None).await?;
    assert_eq!(ended.job.state, State::Waiting);
    let wait = ended.job.wait.as_ref().unwrap().on.to_string();
    assert_eq!(wait, "operator EFFECT_UNKNOWN at charge");
    assert_eq!(outside.count("charge"), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn behind_the_barrier_the_code_is_told_if_it_says_so() -> HandlerResult {
    let (ended, outside) = behind_the_barrier(OnUnknown::Hand, None).await?;
    assert_eq!(ended.result::<String>()?, "unknown");
    assert_eq!(outside.count("charge"), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn behind_the_barrier_the_other_side_is_asked_first() -> HandlerResult {
    let happened = Some(Reconciled::Happened(9));
    let (ended, outside) = behind_the_barrier(OnUnknown::DeadLetter, happened).await?;
    assert_eq!((ended.result::<u32>()?, outside.count("charge")), (9, 1));
    assert_eq!(outside.count("asked"), 1);
    let not_done = Some(Reconciled::NotDone);
    let (ended, outside) = behind_the_barrier(OnUnknown::DeadLetter, not_done).await?;
    assert_eq!((ended.result::<u32>()?, outside.count("charge")), (7, 2));
    let unknown = Some(Reconciled::Unknown);
    let (ended, outside) = behind_the_barrier(OnUnknown::DeadLetter, unknown).await?;
    assert_eq!((ended.job.state, outside.count("charge")), (State::Failed, 1));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_error_of_a_once_step_means_unknown_unless_nothing_was_done() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, Run(number)| {
        let outside = seen.clone();
        Box::pin(async move {
            let step = ctx.step("charge", move |_| {
                let outside = outside.clone();
                async move {
                    let nth = outside.note(&format!("charge {number}"));
                    match number {
                        0 => Err::<u32, windlass::BoxError>("the line was cut".into()),
                        _ if nth < 3 => Err(NotDone::because("refused before it was sent").into()),
                        _ => Ok(nth),
                    }
                }
            });
            let retry = StepRetry::times(3).backoff(Duration::from_millis(10));
            Ok(json!(step.once().retry(retry).await?))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let unknown = engine.enqueue(Run(0)).await?;
    let ended = engine.wait(unknown.id).await?;
    assert_eq!(ended.job.error.map(|it| it.code), Some(EFFECT_UNKNOWN.to_owned()));
    assert_eq!((ended.job.attempt, outside.count("charge 0")), (1, 1));
    let tried = engine.enqueue(Run(1)).await?;
    assert_eq!(engine.wait(tried.id).await?.result::<u32>()?, 3);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_step_is_tried_with_the_same_key() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, Run(number)| {
        let outside = seen.clone();
        Box::pin(async move {
            let step = ctx.step("mail", |fx: windlass::durable::Fx| {
                let outside = outside.clone();
                async move {
                    let nth = outside.note(fx.key());
                    assert_eq!(fx.try_number(), nth);
                    if nth < 4 { Err::<u32, _>("busy") } else { Ok(nth) }
                }
            });
            // A back-off that is longer than a moment parks the job.
            let retry = StepRetry::times(number).backoff(Duration::from_secs(60));
            Ok(json!(step.idempotent().retry(retry).await?))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(4)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!((ended.result::<u32>()?, ended.job.attempt), (4, 1));
    let failing = engine.enqueue(windlass::job(Run(2)).max_retries(0)).await?;
    let ended = engine.wait(failing.id).await?;
    assert_eq!(ended.job.error.map(|it| it.code), Some(STEP_FAILED.to_owned()));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn nothing_is_a_result_too() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, _| {
        let outside = seen.clone();
        Box::pin(async move {
            ctx.step("unit", does(&outside, "unit", ())).once().await?;
            let none: Option<u32> = ctx.step("none", does(&outside, "none", None)).once().await?;
            let empty = ctx.step("empty", does(&outside, "empty", String::new())).once().await?;
            let no = ctx.step("no", does(&outside, "no", false)).once().await?;
            if outside.note("try") < 2 {
                return Err("again".into());
            }
            Ok(json!([none, empty, no]))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!(ended.result::<serde_json::Value>()?, json!([null, "", false]));
    assert_eq!(["unit", "none", "empty", "no"].map(|what| outside.count(what)), [1; 4]);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn very_many_steps_are_written_in_parts() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let seen = outside.clone();
    let run = handler(move |ctx, Run(count)| {
        let outside = seen.clone();
        Box::pin(async move {
            let mut sum = 0;
            for number in 0..count {
                sum += ctx.step("one", does(&outside, "one", number % 2)).pure().await?;
            }
            if outside.note("try") < 2 {
                return Err("again".into());
            }
            Ok(json!(sum))
        })
    });
    let worker = engine.worker().durable(run).start().await?;
    let job = engine.enqueue(Run(2_500)).await?;
    let ended = engine.wait(job.id).await?;
    assert_eq!((ended.result::<u32>()?, outside.count("one")), (1_250, 2_500));
    let full = engine.enqueue(windlass::job(Run(10_001)).max_retries(0)).await?;
    let ended = engine.wait(full.id).await?;
    assert_eq!(ended.job.error.map(|it| it.code), Some("LEDGER_FULL".to_owned()));
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn code_that_has_changed_parks_the_job_and_burns_no_retry() -> HandlerResult {
    let (engine, outside) = (engine(), Outside::default());
    let make = |name: &'static str| {
        let seen = outside.clone();
        handler(move |ctx, _| {
            let outside = seen.clone();
            Box::pin(async move {
                ctx.step(name, does(&outside, name, 1)).idempotent().await?;
                if outside.note("try") < 2 {
                    return Err("again".into());
                }
                Ok(json!(null))
            })
        })
    };
    let first = engine.worker().durable(make("old")).start().await?;
    let job = engine.enqueue(Run(0)).await?;
    while outside.count("try") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    first.shutdown().await?;
    let second = engine.worker().durable(make("new")).start().await?;
    // What an earlier attempt has on record and the code does not ask for is no difference: a retry may go another way.
    let ended = wait_or_park(&engine, job.id).await?;
    assert_eq!(ended.job.state, State::Succeeded);
    second.shutdown().await?;
    Ok(())
}
