//! Why is it not running? Each reason, and two at once.

use std::time::Duration;

use windlass::{
    Breaker, Engine, Failure, HandlerResult, Ids, JobId, job, rule, testing, why::Reason,
};
use windlass_kernel::{
    By, State,
    admit::Because,
    job::{Wait, WaitOn},
    ops::WaitFor,
};
use windlass_store::{
    ClaimMany, Reply, Write,
    read::{Listens, Word},
};

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

/// While it lets a job end it takes no other: from the beginning of its end on it listens no more.
#[tokio::test(start_paused = true)]
async fn a_worker_that_shuts_down_listens_no_more() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().handle(act).start().await?;
    let running = engine.enqueue(Do::SleepMs(60_000)).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ending = tokio::spawn(worker.drain());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let id = engine.enqueue(Do::succeed()).await?.id;
    let found = reasons(&engine, id).await;
    assert!(matches!(&found[..], [Reason::NoWorkerForQueue { .. }]), "{found:?}");
    assert_eq!(engine.job(running).await?.state, State::Running);
    ending.await??;
    assert_eq!(engine.job(running).await?.state, State::Succeeded);
    Ok(())
}

/// A worker elsewhere says something of itself.
async fn says(engine: &Engine, word: Word) {
    let write = Write::Listens { worker: "elsewhere".parse().unwrap(), tenant: None, word };
    engine.committer().submit(write).await.unwrap();
}

fn listens_to_do() -> Word {
    let (queues, kinds) = (vec!["default".parse().unwrap()], vec!["do".parse().unwrap()]);
    Word::To(Listens { queues, kinds, tenant: None })
}

#[tokio::test(start_paused = true)]
async fn all_who_could_run_it_are_silent() -> HandlerResult {
    let engine = testing::engine()?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    says(&engine, listens_to_do()).await;
    let said_at = engine.now();
    // Whoever is well gives its word every ten seconds.
    tokio::time::sleep(Duration::from_secs(14)).await;
    let found = reasons(&engine, id).await;
    assert!(matches!(&found[..], [Reason::InLine { before: 0, .. }]), "{found:?}");
    tokio::time::sleep(Duration::from_secs(27)).await;
    let found = reasons(&engine, id).await;
    let [Reason::WorkersSilent { kind, queue, worker, last_seen_at, silent_for, holds: 0 }] =
        &found[..]
    else {
        panic!("{found:?}")
    };
    assert_eq!((kind.as_str(), queue.as_str(), worker.as_str()), ("do", "default", "elsewhere"));
    assert_eq!((*last_seen_at, silent_for.as_secs()), (said_at, 41));
    let words = "the last worker that runs kind do in queue default, elsewhere, was seen 41 s ago";
    assert_eq!(found[0].to_string(), words);
    // One that lives is enough, also if it has no room.
    engine.put_rule(rule("stop").pause()).await?;
    let worker = engine.worker().handle(act).start().await?;
    assert!(matches!(&reasons(&engine, id).await[..], [Reason::Rule { .. }]));
    worker.shutdown().await?;
    engine.drop_rule("stop", None).await?;
    says(&engine, Word::Still).await;
    assert!(matches!(&reasons(&engine, id).await[..], [Reason::InLine { .. }]));
    says(&engine, Word::Goodbye).await;
    let found = reasons(&engine, id).await;
    assert!(matches!(&found[..], [Reason::NoWorkerForQueue { near, .. }] if near.is_empty()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn whoever_is_silent_with_a_job_in_hand_may_be_busy() -> HandlerResult {
    let engine = testing::engine()?;
    says(&engine, listens_to_do()).await;
    let jobs = engine.enqueue_all((0..3).map(|_| Do::succeed())).await;
    let [_, next, last] = [0, 1, 2].map(|at| jobs[at].as_ref().unwrap().id);
    claim(&engine, true).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let found = reasons(&engine, next).await;
    assert!(matches!(&found[..], [Reason::InLine { before: 0, .. }]), "{found:?}");
    tokio::time::sleep(Duration::from_secs(7)).await;
    let found = reasons(&engine, next).await;
    assert!(matches!(&found[..], [Reason::WorkersSilent { holds: 1, .. }]), "{found:?}");
    let words = found[0].to_string();
    assert!(words.ends_with("27 s ago; it holds a job and may be busy with it"), "{words}");
    let found = reasons(&engine, last).await;
    let [Reason::WorkersSilent { holds: 1, .. }, Reason::InLine { before: 1, .. }] = &found[..]
    else {
        panic!("{found:?}")
    };
    // Its lease runs out, and nothing says any more that it may come back.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let found = reasons(&engine, last).await;
    assert!(matches!(&found[..], [Reason::WorkersSilent { holds: 0, .. }]), "{found:?}");
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

/// Somebody else's worker takes the one job that is ready.
async fn claim(engine: &Engine, start: bool) -> windlass_store::Granted {
    let wanted = ClaimMany {
        claim_id: Ids::system().claim_id(),
        worker: "elsewhere".parse().unwrap(),
        trace_id: None,
        tenant: None,
        except: Vec::new(),
        queues: vec!["default".parse().unwrap()],
        kinds: Vec::new(),
        max: 1,
        lease: Duration::from_secs(30),
        start,
        neighbours: Vec::new(),
    };
    match engine.committer().submit(Write::Claim(wanted)).await.unwrap() {
        Reply::Granted { mut jobs, .. } => jobs.remove(0),
        other => panic!("a claim was answered with {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_has_it_and_has_not_started_it() -> HandlerResult {
    let engine = testing::engine()?;
    let id = engine.enqueue(Do::succeed()).await?.id;
    claim(&engine, false).await;
    let found = reasons(&engine, id).await;
    let [Reason::Dispatched { worker }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(worker.as_str(), "elsewhere");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_waits_for_a_signal_or_for_a_child() -> HandlerResult {
    let engine = testing::engine()?;
    for on in ["signal approved", "child"] {
        let id = engine.enqueue(Do::succeed()).await?.id;
        let granted = claim(&engine, true).await;
        let on = match on {
            "child" => WaitOn::Child(
                engine.enqueue(job(Do::succeed()).parent(id).queue("children")).await?.id,
            ),
            _ => WaitOn::Signal("approved".parse()?),
        };
        let (tenant, epoch) = (granted.job.spec.tenant.clone(), granted.job.epoch);
        let wait = Wait { on: on.clone(), until: None };
        let op = WaitFor {
            job_id: id,
            epoch,
            wait,
            by: By::worker("elsewhere".parse()?),
            mails_seen: None,
        };
        engine.committer().submit(Write::Op { tenant, op: op.into() }).await?;
        let found = reasons(&engine, id).await;
        assert_eq!(found, [Reason::Waiting { on, until: None }]);
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn it_has_to_be_alone() -> HandlerResult {
    let engine = testing::engine()?;
    let busy = engine.worker().handle(act).start().await?;
    let other = engine.enqueue(Do::SleepMs(600_000)).await?.id;
    let id = engine.enqueue(job(Do::SleepMs(600_000)).queue("poison")).await?.id;
    for _ in 0..2 {
        let doomed = engine.worker().queues(["poison"]).handle(act).start().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
        doomed.kill();
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
    let idle = engine.worker().queues(["poison"]).handle(act).start().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let found = reasons(&engine, id).await;
    assert_eq!(found, [Reason::MustBeAlone { interruptions: 2 }], "while {other} runs");
    idle.kill();
    busy.kill();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_breaker_lets_a_few_try() -> HandlerResult {
    let engine = testing::engine()?;
    let is_first = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let handler = move |_: Do| {
        let is_first = is_first.swap(false, std::sync::atomic::Ordering::SeqCst);
        async move {
            if is_first {
                return Err(Failure::permanent("DOWN", "down").into());
            }
            tokio::time::sleep(Duration::from_secs(600)).await;
            HandlerResult::Ok(())
        }
    };
    let worker = engine.worker().concurrency(2).handle(handler).start().await?;
    let breaker = Breaker { failures: 1, open_for: Duration::from_secs(1), ..Breaker::default() };
    engine.put_rule(rule("stripe").breaker(breaker)).await?;
    engine.enqueue(Do::succeed()).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let jobs = engine.enqueue_all((0..2).map(|_| Do::succeed())).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let found = reasons(&engine, jobs[1].as_ref().unwrap().id).await;
    let [Reason::Rule { blocked, holders, .. }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(blocked.because, Because::BreakerProbes { allowed: 1, held: 1 });
    assert_eq!(holders[0].job_id, jobs[0].as_ref().unwrap().id);
    worker.kill();
    Ok(())
}
