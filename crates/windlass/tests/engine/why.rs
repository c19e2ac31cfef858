//! Why is it not running? Each reason, and two at once.

use std::time::Duration;

use windlass::{Breaker, Engine, Failure, HandlerResult, JobId, job, rule, testing, why::Reason};
use windlass_kernel::admit::Because;

use crate::common::{Do, act};

async fn reasons(engine: &Engine, id: JobId) -> Vec<Reason> {
    let why = engine.why(id).await.unwrap();
    let words = why.to_string();
    assert!(words.starts_with(&format!("{id} is {}", why.state)), "{words}");
    assert_eq!(words.lines().count(), why.reasons.len() + 1, "{words}");
    println!("{words}\n{}", serde_json::to_string_pretty(&why).unwrap());
    why.reasons
}

#[tokio::test(start_paused = true)]
async fn it_is_not_due() -> HandlerResult {
    let engine = testing::engine()?;
    let _worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(job(Do::succeed()).after(Duration::from_secs(60))).await?.id;
    let until = engine.job(id).await?.spec.due_at;
    assert_eq!(reasons(&engine, id).await, [Reason::NotDue { until }]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_backs_off() -> HandlerResult {
    let engine = testing::engine()?;
    let _worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(Do::Fail).await?.id;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let found = reasons(&engine, id).await;
    let [Reason::BackingOff { retry: 1, max_retries: 3, code: Some(code), .. }] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(code, "HANDLER_FAILED");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_is_paused_and_nobody_listens_either() -> HandlerResult {
    let engine = testing::engine()?.acting_as("ann")?;
    let _worker = engine.worker().queues(["mails", "reports"]).handle(act).start().await?;
    engine.put_rule(rule("night").queue("mail").reason("maintenance").pause()).await?;
    let id = engine.enqueue(job(Do::succeed()).queue("mail")).await?.id;
    let found = reasons(&engine, id).await;
    let [Reason::Rule { blocked, by, because_of, .. }, Reason::NoWorkerForQueue { queue, near }] =
        &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((blocked.rule.as_str(), blocked.because), ("night", Because::Paused));
    assert_eq!((by.to_string().as_str(), because_of.as_deref()), ("user:ann", Some("maintenance")));
    assert_eq!((queue.as_str(), near.len(), near[0].as_str()), ("mail", 1, "mails"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn no_worker_runs_its_kind() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(windlass::JobRequest::raw("doo", "{}")).await?.id;
    let found = reasons(&engine, id).await;
    let [Reason::NoWorkerForKind { kind, near }] = &found[..] else { panic!("{found:?}") };
    assert_eq!((kind.as_str(), near[0].as_str()), ("doo", "do"));
    worker.shutdown().await?;
    let found = reasons(&engine, id).await;
    assert!(matches!(&found[..], [Reason::NoWorkerForQueue { near, .. }] if near.is_empty()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_used_up_and_it_says_by_whom() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    engine.put_rule(rule("one").at_most(1)).await?;
    let holder = engine.enqueue(Do::SleepMs(60_000)).await?.id;
    let id = engine.enqueue(Do::succeed()).await?.id;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let found = reasons(&engine, id).await;
    let [Reason::Rule { blocked, holders, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(blocked.because, Because::NoSlot { max: 1, held: 1 });
    assert_eq!((holders[0].job_id, &holders[0].worker), (holder, worker.id()));
    let found = reasons(&engine, holder).await;
    assert!(matches!(&found[..], [Reason::Running { worker: by, .. }] if by == worker.id()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_limits_and_a_rate_are_used_up() -> HandlerResult {
    let engine = testing::engine()?;
    let _worker = engine.worker().handle(act).start().await?;
    engine.put_rule(rule("one").at_most(1)).await?;
    engine.put_rule(rule("rare").rate(1, Duration::from_secs(3_600))).await?;
    engine.enqueue(Do::SleepMs(60_000)).await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let found = reasons(&engine, id).await;
    let because = |reason: &Reason| match reason {
        Reason::Rule { blocked, .. } => (blocked.because, blocked.until.is_some()),
        other => panic!("{other:?}"),
    };
    let found: Vec<_> = found.iter().map(because).collect();
    let no_slot = (Because::NoSlot { max: 1, held: 1 }, false);
    assert_eq!(found, [no_slot, (Because::RateReached, true)]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_breaker_is_open() -> HandlerResult {
    let engine = testing::engine()?;
    let fails = async |_: Do| HandlerResult::<()>::Err(Failure::permanent("DOWN", "down").into());
    let _worker = engine.worker().concurrency(1).handle(fails).start().await?;
    engine.put_rule(rule("stripe").breaker(Breaker { failures: 2, ..Breaker::default() })).await?;
    let jobs = engine.enqueue_all((0..3).map(|_| Do::succeed())).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let found = reasons(&engine, jobs[2].as_ref().unwrap().id).await;
    let [Reason::Rule { blocked, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(blocked.because, Because::BreakerOpen { failures: 2 });
    assert!(blocked.until.is_some());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_budget_for_retries_is_spent() -> HandlerResult {
    let engine = testing::engine()?;
    let _worker = engine.worker().handle(act).start().await?;
    engine.put_rule(rule("again").retry_budget(0, 1)).await?;
    let quick = || job(Do::Fail).max_retries(9).backoff(Duration::ZERO, Duration::ZERO);
    let id = engine.enqueue(quick()).await?.id;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let found = reasons(&engine, id).await;
    let [Reason::Rule { blocked, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(blocked.because, Because::RetryBudgetSpent);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_time() -> HandlerResult {
    let engine = testing::engine()?;
    let _worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(Do::SnoozeMs(60_000)).await?.id;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let found = reasons(&engine, id).await;
    assert!(matches!(&found[..], [Reason::Waiting { until: Some(_), .. }]), "{found:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_stands_in_line() -> HandlerResult {
    let engine = testing::engine()?;
    let _worker = engine.worker().concurrency(2).handle(act).start().await?;
    let jobs = engine.enqueue_all((0..12).map(|_| Do::SleepMs(10_000))).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let found = reasons(&engine, jobs[11].as_ref().unwrap().id).await;
    // Two are held for four seconds by now: one every two seconds, and ten to go.
    let [Reason::InLine { before, at_least: false, starts_in: Some(time) }] = &found[..] else {
        panic!("{found:?}")
    };
    assert!(*before <= 9 && *time > Duration::from_secs(1) && *time < Duration::from_secs(30));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_is_at_its_end_or_another_tenants() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    engine.wait(id).await?;
    assert!(matches!(&reasons(&engine, id).await[..], [Reason::Ended { at: Some(_) }]));
    assert!(engine.tenant("other")?.why(id).await.is_err());
    worker.shutdown().await?;
    Ok(())
}
