//! Rules, through the engine: who may run, and what happens when that changes.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use windlass::{
    Breaker, Each, Engine, Error, Failure, HandlerResult, JobRequest, Refusal, State, Work, job,
    rule, testing,
};

use crate::common::{Do, act};

/// A job of a customer that takes a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Visit {
    customer: String,
    ms: u64,
}

impl Work for Visit {
    const KIND: &str = "visit";

    fn limit_key(&self) -> Option<String> {
        Some(self.customer.clone())
    }
}

/// How many handlers run at once, together and of each customer, as the handlers themselves see it.
#[derive(Clone, Default)]
struct Watch {
    now: Arc<Mutex<Vec<String>>>,
    most: Arc<AtomicUsize>,
    most_of_one: Arc<AtomicUsize>,
    begun: Arc<Mutex<Vec<Instant>>>,
}

impl Watch {
    async fn visit(self, job: Visit) -> HandlerResult {
        {
            let mut now = self.now.lock().unwrap();
            now.push(job.customer.clone());
            self.most.fetch_max(now.len(), Ordering::SeqCst);
            let same = now.iter().filter(|other| **other == job.customer).count();
            self.most_of_one.fetch_max(same, Ordering::SeqCst);
            self.begun.lock().unwrap().push(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(job.ms)).await;
        let mut now = self.now.lock().unwrap();
        let place = now.iter().position(|other| *other == job.customer).unwrap();
        now.remove(place);
        Ok(())
    }

    fn most(&self) -> (usize, usize) {
        (self.most.load(Ordering::SeqCst), self.most_of_one.load(Ordering::SeqCst))
    }

    fn begun(&self) -> usize {
        self.begun.lock().unwrap().len()
    }
}

fn visits(customers: usize, of_each: usize, ms: u64) -> Vec<JobRequest> {
    let visit = |place: usize| job(Visit { customer: format!("c{}", place % customers), ms });
    (0..customers * of_each).map(visit).collect()
}

async fn worker_for(engine: &Engine, watch: &Watch) -> Result<windlass::Worker, Error> {
    let watch = watch.clone();
    engine.worker().concurrency(50).handle(move |job: Visit| watch.clone().visit(job)).start().await
}

async fn all_done(engine: &Engine, requests: Vec<JobRequest>) -> HandlerResult {
    for enqueued in engine.enqueue_all(requests).await {
        assert!(engine.wait(enqueued?.id).await?.is_success());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_kept_and_used_to_the_full() -> HandlerResult {
    let (engine, watch) = (testing::engine()?, Watch::default());
    engine.put_rule(rule("visits").kind("visit").at_most(7)).await?;
    let worker = worker_for(&engine, &watch).await?;
    let began = Instant::now();
    all_done(&engine, visits(10, 7, 1_000)).await?;
    assert_eq!(watch.most().0, 7);
    assert!(began.elapsed() < Duration::from_millis(10_500), "{:?}", began.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_limit_of_its_own() -> HandlerResult {
    let (engine, watch) = (testing::engine()?, Watch::default());
    engine.put_rule(rule("one per customer").each(Each::Key).at_most(1)).await?;
    let worker = worker_for(&engine, &watch).await?;
    let began = Instant::now();
    all_done(&engine, visits(20, 5, 1_000)).await?;
    assert_eq!(watch.most(), (20, 1));
    assert!(began.elapsed() < Duration::from_millis(5_500), "{:?}", began.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_limits_hold_at_once_on_two_nodes() -> HandlerResult {
    let (clock, watch) = (testing::clock(), Watch::default());
    let store = testing::store(clock.clone())?;
    let node = |seed| {
        let config = testing::config(clock.clone(), testing::seeded(seed));
        Engine::on(store.clone(), &config)
    };
    let (one, other) = (node(1), node(2));
    one.put_rule(rule("one per customer").each(Each::Key).at_most(2)).await?;
    one.put_rule(rule("visits").at_most(5)).await?;
    let workers = [worker_for(&one, &watch).await?, worker_for(&other, &watch).await?];
    all_done(&one, visits(4, 20, 100)).await?;
    assert_eq!(watch.most(), (5, 2));
    for worker in workers {
        worker.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_limit_can_be_changed_and_dropped_while_jobs_run() -> HandlerResult {
    let (engine, watch) = (testing::engine()?, Watch::default());
    engine.put_rule(rule("visits").at_most(1)).await?;
    let worker = worker_for(&engine, &watch).await?;
    let jobs = engine.enqueue_all(visits(30, 1, 60_000)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watch.begun(), 1);
    engine.put_rule(rule("visits").at_most(4)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watch.begun(), 4);
    engine.drop_rule("visits", None).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(watch.begun(), 30);
    for job in jobs {
        assert!(engine.wait(job?.id).await?.is_success());
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slots_are_free_again_when_a_worker_dies() -> HandlerResult {
    let (engine, watch) = (testing::engine()?, Watch::default());
    engine.put_rule(rule("one per customer").each(Each::Key).at_most(1)).await?;
    let doomed = worker_for(&engine, &watch).await?;
    let jobs = engine.enqueue_all(visits(3, 4, 1_000)).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    doomed.kill();
    let worker = worker_for(&engine, &Watch::default()).await?;
    for job in jobs {
        assert!(engine.wait(job?.id).await?.is_success());
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_rate_holds_within_two_percent_and_a_restart_gives_no_burst() -> HandlerResult {
    let (clock, watch) = (testing::clock(), Watch::default());
    let store = testing::store(clock.clone())?;
    let node = |seed| {
        let config = testing::config(clock.clone(), testing::seeded(seed));
        Engine::on(store.clone(), &config)
    };
    let engine = node(1);
    engine.put_rule(rule("slowly").rate(600, Duration::from_secs(60))).await?;
    engine.enqueue_all(visits(1_000, 2, 1)).await;
    let worker = worker_for(&engine, &watch).await?;
    tokio::time::sleep(Duration::from_secs(30)).await;
    // Another process takes over.
    worker.kill();
    engine.kill();
    let (engine, before) = (node(2), watch.begun());
    let worker = worker_for(&engine, &watch).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(watch.begun() - before <= 2, "{} at once after a restart", watch.begun() - before);
    tokio::time::sleep(Duration::from_millis(29_900)).await;
    let begun = watch.begun();
    assert!((588..=612).contains(&begun), "{begun} began in a minute");
    worker.kill();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_what_has_not_begun_and_a_resume_lets_it_go_at_once() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().queues(["default", "mail"]).handle(act).start().await?;
    let runs = engine.enqueue(job(Do::SleepMs(5_000)).queue("mail")).await?.id;
    tokio::time::sleep(Duration::from_secs(1)).await;
    engine.put_rule(rule("night").queue("mail").reason("at night").pause()).await?;
    let waits = engine.enqueue(job(Do::succeed()).queue("mail")).await?.id;
    let other = engine.enqueue(Do::succeed()).await?.id;
    assert!(engine.wait(other).await?.is_success());
    assert!(engine.wait(runs).await?.is_success(), "what runs goes on");
    assert_eq!(engine.job(waits).await?.state, State::Queued);
    engine.drop_rule("night", None).await?;
    let resumed = Instant::now();
    assert!(engine.wait(waits).await?.is_success());
    assert!(resumed.elapsed() < Duration::from_millis(50), "{:?}", resumed.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_drain_takes_nothing_in_and_lets_everything_out() -> HandlerResult {
    let engine = testing::engine()?;
    let inside = engine.enqueue(job(Do::SleepMs(1_000)).queue("old")).await?.id;
    engine.put_rule(rule("move").queue("old").drain()).await?;
    let refused = engine.enqueue(job(Do::succeed()).queue("old")).await;
    let is_draining = matches!(&refused, Err(Error::Refused(Refusal::Draining { .. })));
    assert!(is_draining, "{refused:?}");
    assert!(engine.enqueue(Do::succeed()).await.is_ok());
    let worker = engine.worker().queues(["old"]).handle(act).start().await?;
    assert!(engine.wait(inside).await?.is_success());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_breaker_opens_and_jobs_wait_without_using_retries_up() -> HandlerResult {
    let engine = testing::engine()?;
    let breaker = Breaker { failures: 3, open_for: Duration::from_secs(60), ..Breaker::default() };
    engine.put_rule(rule("stripe").kind("do").breaker(breaker)).await?;
    let is_down = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let (tried, down) = (Arc::new(AtomicUsize::new(0)), is_down.clone());
    let counted = tried.clone();
    let handler = move |_: Do| {
        let (down, tried) = (down.clone(), counted.clone());
        async move {
            tried.fetch_add(1, Ordering::SeqCst);
            if down.load(Ordering::SeqCst) {
                return Err(Failure::transient("DOWN", "stripe is down").into());
            }
            HandlerResult::Ok(())
        }
    };
    let worker = engine.worker().concurrency(1).handle(handler).start().await?;
    let jobs = engine.enqueue_all((0..20).map(|_| job(Do::succeed()).max_retries(2))).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(tried.load(Ordering::SeqCst), 3, "then it is open");
    // One is tried after a minute, and fails: open for two minutes more.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(tried.load(Ordering::SeqCst), 4);
    is_down.store(false, Ordering::SeqCst);
    for job in jobs {
        let ended = engine.wait(job?.id).await?;
        assert!(ended.is_success(), "{:?}", ended.job.error);
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_retry_budget_bounds_retries_as_a_share_of_first_tries() -> HandlerResult {
    let engine = testing::engine()?;
    engine.put_rule(rule("again").retry_budget(10, 6)).await?;
    let worker = engine.worker().concurrency(10).handle(act).start().await?;
    let quick = |request: JobRequest| request.backoff(Duration::ZERO, Duration::ZERO);
    engine.enqueue_all((0..100).map(|_| quick(job(Do::Fail).max_retries(5)))).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let page = windlass_store::read::JobFilter::of("default".parse::<windlass_kernel::TenantId>()?);
    let cursor = windlass_store::read::PageFrom { from: None, limit: 1_000 };
    let jobs = engine.store().jobs(page, cursor).await?.items;
    let tries: u32 = jobs.iter().map(|job| job.attempt).sum();
    assert!((110..=112).contains(&tries), "{tries} tries of 100 jobs");
    worker.kill();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_unique_is_there_once_until_it_is_done() -> HandlerResult {
    let engine = testing::engine()?;
    let report = || job(Do::SleepMs(1_000)).unique("daily report");
    let first = engine.enqueue(report()).await?;
    let again = engine.enqueue(report()).await?;
    assert_eq!((again.id, again.idempotent_hit), (first.id, true));
    let other = engine.tenant("other")?.enqueue(report()).await?;
    assert_ne!(other.id, first.id, "another tenant's is another");
    let many = engine.enqueue_all((0..10).map(|_| job(Do::succeed()).unique("hourly"))).await;
    let ids: std::collections::BTreeSet<_> = many.into_iter().map(|it| it.unwrap().id).collect();
    assert_eq!(ids.len(), 1);
    let worker = engine.worker().handle(act).start().await?;
    assert!(engine.wait(first.id).await?.is_success());
    let next = engine.enqueue(report()).await?;
    assert!(next.id != first.id && !next.idempotent_hit);
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_jobs_of_one_tenant_leave_slots_to_others() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(4).tenant_max(3).handle(act).start().await?;
    let slow = engine.tenant("slow")?;
    let jobs = slow.enqueue_all((0..10).map(|_| Do::SleepMs(60_000))).await;
    // All that may begin have begun.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut running = 0;
    for job in &jobs {
        let job = slow.job(job.as_ref().unwrap().id).await?;
        running += usize::from(job.state == State::Running);
    }
    assert_eq!(running, 3, "the fourth slot is for others");
    let quick = engine.tenant("quick")?;
    let began = Instant::now();
    let job = quick.enqueue(Do::succeed()).await?;
    quick.wait(job.id).await?;
    assert!(began.elapsed() < Duration::from_secs(30), "it waited {:?}", began.elapsed());
    // What had to wait is taken as soon as there is a slot, and all come to their ends.
    for job in jobs {
        slow.wait(job?.id).await?;
    }
    assert!(began.elapsed() < Duration::from_secs(300), "all took {:?}", began.elapsed());
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn one_tenant_with_many_jobs_does_not_keep_another_waiting() -> HandlerResult {
    let engine = testing::engine()?;
    engine.tenant("big")?.enqueue_all((0..2_000).map(|_| Do::SleepMs(100))).await;
    let worker = engine.worker().concurrency(4).handle(act).start().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let small = engine.tenant("small")?;
    let asked = Instant::now();
    let id = small.enqueue(Do::succeed()).await?.id;
    assert!(small.wait(id).await?.is_success());
    assert!(asked.elapsed() < Duration::from_millis(400), "{:?}", asked.elapsed());
    worker.kill();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_must_be_alone_is_alone_in_its_process() -> HandlerResult {
    let engine = testing::engine()?;
    let busy = engine.worker().queues(["busy"]).handle(act).start().await?;
    let other = engine.enqueue(job(Do::SleepMs(300_000)).queue("busy")).await?.id;
    // It is interrupted twice, by workers that die.
    let poison = engine.enqueue(job(Do::SleepMs(1_000)).queue("poison")).await?.id;
    for _ in 0..2 {
        let doomed = engine.worker().queues(["poison"]).handle(act).start().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
        doomed.kill();
        tokio::time::sleep(Duration::from_secs(40)).await;
    }
    assert!(engine.job(poison).await?.is_isolated());
    let idle = engine.worker().queues(["poison"]).handle(act).start().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.job(other).await?.state, State::Running);
    assert_eq!(
        engine.job(poison).await?.state,
        State::Interrupted,
        "its neighbour would die with it"
    );
    assert!(engine.wait(poison).await?.is_success());
    assert_eq!(engine.job(other).await?.state, State::Succeeded);
    idle.shutdown().await?;
    busy.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_nobody_can_mean_is_refused() -> HandlerResult {
    let engine = testing::engine()?;
    let refused = [
        rule("").at_most(1),
        rule("r").queue("").at_most(1),
        rule("r").weight(3),
        rule("r").tenant("t").weight(0),
        rule("r").turns_by_key(),
        rule("r").rate(1, Duration::ZERO),
        rule("r").rate(30_000, Duration::from_secs(1)),
        rule("r").breaker(Breaker { failures: 0, ..Breaker::default() }),
        rule("r").retry_budget(10, 0),
    ];
    for request in refused {
        let answer = engine.put_rule(request.clone()).await;
        assert!(matches!(answer, Err(Error::Refused(_))), "{request:?}: {answer:?}");
    }
    assert!(matches!(engine.drop_rule("none", None).await, Err(Error::Refused(_))));
    assert_eq!(engine.rules().await?, []);
    Ok(())
}
