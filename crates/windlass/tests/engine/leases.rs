//! What a worker holds it runs, and what it does not run it gives back.

use std::time::Duration;

use windlass::{
    Engine, HandlerResult, Ids, JobId, State, Worker,
    faults::{Fault, Faults},
    job, testing,
};
use windlass_kernel::{Kind, Queue};
use windlass_store::{ClaimMany, Reply, Write};

use crate::common::{Do, act, path};

const LEASE: Duration = Duration::from_secs(10);

/// A claim in the name of a worker, whose answer the worker never hears.
async fn lose_a_claim(engine: &Engine, worker: &Worker, start: bool) -> JobId {
    let wanted = ClaimMany {
        claim_id: Ids::system().claim_id(),
        worker: worker.id().clone(),
        trace_id: None,
        tenant: None,
        except: Vec::new(),
        queues: vec![Queue::new("default").unwrap()],
        kinds: vec![Kind::new("do").unwrap()],
        max: 1,
        lease: LEASE,
        start,
        neighbours: Vec::new(),
    };
    match engine.committer().submit(Write::Claim(wanted)).await.unwrap() {
        Reply::Granted { jobs, .. } => jobs[0].job.id,
        other => panic!("a claim was answered with {other:?}"),
    }
}

/// A worker that is busy for a long time, and so renews its session all the while.
async fn busy_worker(engine: &Engine) -> HandlerResult<Worker> {
    let worker = engine.worker().concurrency(1).prefetch(0).lease(LEASE).handle(act);
    let worker = worker.start().await?;
    engine.enqueue(Do::SleepMs(60_000)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(worker)
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_claim_was_never_heard_of_is_given_back() -> HandlerResult {
    for (start, expected) in [
        (false, "queued dispatched queued dispatched running succeeded"),
        (true, "queued dispatched running interrupted dispatched running succeeded"),
    ] {
        let engine = testing::engine()?;
        let worker = busy_worker(&engine).await?;
        let id = engine.enqueue(Do::succeed()).await?.id;
        assert_eq!(lose_a_claim(&engine, &worker, start).await, id);
        tokio::time::sleep(LEASE).await;
        let expected_state = if start { State::Interrupted } else { State::Queued };
        assert_eq!(engine.job(id).await?.state, expected_state, "it waits for a worker");
        assert!(engine.wait(id).await?.is_success());
        assert_eq!(path(&engine, id).await, expected);
        assert_eq!(engine.job(id).await?.interruptions, 0, "it is nobody's fault");
        worker.shutdown().await?;
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_is_claimed_while_a_renewal_is_under_way_is_not_given_back() -> HandlerResult {
    let engine = testing::engine()?;
    let worker = engine.worker().concurrency(4).lease(LEASE).renew_every(Duration::from_millis(1));
    let worker = worker.handle(act).start().await?;
    let ids = engine.enqueue_all((0..500).map(|number| Do::SleepMs(number % 7))).await;
    for id in ids {
        let id = id?.id;
        assert!(engine.wait(id).await?.is_success());
        assert_eq!(path(&engine, id).await, "queued dispatched running succeeded");
    }
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn jobs_that_have_to_be_alone_keep_nobody_waiting() -> HandlerResult {
    let (engine, faults) = (testing::engine()?, Faults::new());
    // Ten jobs are interrupted twice, so that each has to be alone from then on.
    faults.inject(Fault::ProcessRestartInterrupt, 20);
    let worker = engine.worker().concurrency(10).poll(Duration::from_secs(600));
    let worker = worker.layer(faults).handle(act).start().await?;
    let began = tokio::time::Instant::now();
    let ids = engine.enqueue_all((0..10).map(|_| job(Do::SleepMs(10)))).await;
    for id in ids {
        let ended = engine.wait(id?.id).await?;
        assert!(ended.is_success());
        assert_eq!(ended.job.interruptions, 2);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    worker.shutdown().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_busy_worker_leaves_new_jobs_to_an_idle_one() -> HandlerResult {
    let clock = testing::clock();
    let store = testing::store(clock.clone())?;
    let engines = [1, 2].map(|seed| {
        Engine::on(store.clone(), &testing::config(clock.clone(), testing::seeded(seed)))
    });
    let [here, there] = &engines;
    let worker = |engine: &Engine| engine.worker().concurrency(4).handle(act);
    let busy = worker(here).start().await?;
    // It does many short jobs, and then it has its hands full.
    let mut ids = Vec::new();
    for wanted in [vec![Do::SleepMs(10); 100], vec![Do::SleepMs(3_600_000); 4]].concat() {
        ids.push(here.enqueue(wanted).await?.id);
    }
    for id in &ids[..100] {
        here.wait(*id).await?;
    }
    let idle = worker(there).start().await?;
    for pause_ms in [0, 1, 50, 1_000, 60_000] {
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        let began = tokio::time::Instant::now();
        let enqueued = here.enqueue_all(vec![Do::SleepMs(10); 8]).await;
        for id in enqueued {
            assert!(here.wait(id?.id).await?.is_success());
        }
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    }
    idle.shutdown().await?;
    busy.kill();
    Ok(())
}
