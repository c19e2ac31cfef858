//! The store goes away while jobs run. They run on while their leases can still be saved, and their reports land when
//! it is back; if it stays away for longer, they are dropped, and run again.
//!
//! On PostgreSQL alone: a file does not go away.

use std::time::{Duration, Instant};

use windlass::{Engine, HandlerResult, JobId, State};
use windlass_testkit::postgres::{Cluster, Options, Stop};

use crate::{
    common::until,
    handlers::Do,
    home::Home,
    node::{Node, Role, told},
    outside::{Outside, Said},
};

const JOBS: usize = 6;
const LIMIT: Duration = Duration::from_secs(60);

fn cluster() -> Cluster {
    Cluster::start(&Options { fsync: false, ..Options::default() })
}

async fn enqueue(engine: &Engine, what: Do) -> HandlerResult<Vec<JobId>> {
    let mut ids = Vec::new();
    for enqueued in engine.enqueue_all(vec![what; JOBS]).await {
        ids.push(enqueued?.id);
    }
    Ok(ids)
}

async fn all(outside: &Outside, ids: &[JobId], what: &str) -> Vec<Said> {
    let look = || ids.iter().map(|id| outside.first(*id, what)).collect::<Option<Vec<_>>>();
    until(what, LIMIT, look).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_store_that_is_away_for_less_than_a_lease_costs_nothing() -> HandlerResult {
    let cluster = cluster();
    let home = Home::on(&cluster);
    let (engine, outside) = (home.open().await, home.outside());
    let role = Role { lease: Duration::from_secs(20), ..Role::on(&home) };
    let nodes = [Node::start(&role), Node::start(&role)];
    let short = enqueue(&engine, Do::SleepMs(1_000)).await?;
    let long = enqueue(&engine, Do::SleepMs(6_000)).await?;
    all(&outside, &short, "begun").await;
    all(&outside, &long, "begun").await;
    cluster.stop(Stop::Immediate);
    // The short ones end while it is away.
    all(&outside, &short, "done").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.restart(Stop::Immediate);
    let back_at = Instant::now();
    let states = async |ids: &[JobId]| -> HandlerResult<()> {
        for id in ids {
            let job = patient_wait(&engine, *id).await;
            assert_eq!((job.state, job.epoch.get()), (State::Succeeded, 1), "{id}");
        }
        Ok(())
    };
    states(&short).await?;
    told("reports landed after the store was back within", back_at);
    states(&long).await?;
    let starts = outside.said().iter().filter(|said| said.what == "begun").count();
    assert_eq!(starts, 2 * JOBS, "nothing was done twice");
    for node in nodes {
        node.stop().await;
    }
    engine.close().await;
    home.check().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_store_that_is_away_for_longer_than_a_lease_takes_it() -> HandlerResult {
    let cluster = cluster();
    let home = Home::on(&cluster);
    let (engine, outside) = (home.open().await, home.outside());
    let role = Role { lease: Duration::from_secs(2), ..Role::on(&home) };
    let node = Node::start(&role);
    let ids = enqueue(&engine, Do::StopFirst).await?;
    all(&outside, &ids, "begun").await;
    cluster.stop(Stop::Immediate);
    let gone_at = Instant::now();
    all(&outside, &ids, "stopped LeaseLost").await;
    let took = told("executions were dropped after the store was gone for", gone_at);
    assert!(took < Duration::from_secs(8), "{took:?}");
    cluster.restart(Stop::Immediate);
    for id in &ids {
        let job = patient_wait(&engine, *id).await;
        assert_eq!((job.state, job.attempt, job.epoch.get()), (State::Succeeded, 1, 2));
    }
    node.stop().await;
    engine.close().await;
    home.check().await;
    Ok(())
}

/// Waits for the end of a job. The connections of this process may be broken, and the server may be starting.
async fn patient_wait(engine: &Engine, id: JobId) -> windlass_kernel::Job {
    let began = Instant::now();
    loop {
        match tokio::time::timeout(LIMIT, engine.wait(id)).await.expect("a job is stuck") {
            Ok(ended) => return ended.job,
            Err(error) => assert!(error.is_retryable() && began.elapsed() < LIMIT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_ends_in_good_order_while_the_store_is_away() -> HandlerResult {
    let cluster = cluster();
    let home = Home::on(&cluster);
    let (engine, outside) = (home.open().await, home.outside());
    let role = Role { lease: Duration::from_secs(4), ..Role::on(&home) };
    let nodes = [Node::start(&role), Node::start(&role)];
    let ids = enqueue(&engine, Do::SleepMs(1_000)).await?;
    all(&outside, &ids, "begun").await;
    cluster.stop(Stop::Immediate);
    let told_at = Instant::now();
    for node in nodes {
        node.stop().await;
    }
    told("two nodes came to their ends without a store within", told_at);
    cluster.restart(Stop::Immediate);
    // What they could not report is done again.
    let node = Node::start(&role);
    for id in &ids {
        assert_eq!(patient_wait(&engine, *id).await.state, State::Succeeded);
    }
    node.stop().await;
    engine.close().await;
    home.check().await;
    Ok(())
}
