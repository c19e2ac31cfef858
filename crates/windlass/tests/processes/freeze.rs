//! A process that is frozen past its lease has lost what it held: when it wakes it changes nothing any more.
//!
//! On PostgreSQL alone. A frozen process keeps its locks, so on SQLite nobody else can have the file.

use std::time::{Duration, Instant};

use windlass::{Engine, HandlerResult, JobId, State};
use windlass_testkit::{
    postgres::{Cluster, Options, Stop},
    random::{self, Chance},
};

use crate::{
    common::until,
    handlers::Do,
    home::Home,
    node::{Node, Role, told},
};

const JOBS: usize = 5;
const LIMIT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_worker_that_wakes_after_its_lease_is_fenced_off() -> HandlerResult {
    let home = Home::postgres();
    let (engine, outside) = (home.open().await, home.outside());
    let role = Role { lease: Duration::from_secs(1), concurrency: JOBS, ..Role::on(&home) };
    let first = Node::start(&role);
    let mut ids: Vec<JobId> = Vec::new();
    for enqueued in engine.enqueue_all(vec![Do::ApplyLate; JOBS]).await {
        ids.push(enqueued?.id);
    }
    let all = |what: &'static str| {
        let (ids, outside) = (ids.clone(), outside.clone());
        move || ids.iter().map(|id| outside.first(*id, what)).collect::<Option<Vec<_>>>()
    };
    until("the first starts", LIMIT, all("begun")).await;
    let second = Node::start(&role);
    first.signal("STOP");
    let done = until("the ends elsewhere", LIMIT, all("done")).await;
    assert!(done.iter().all(|said| said.process == second.id()));
    second.stop().await;
    first.signal("CONT");
    // Each execution hears that its lease is lost, and what it does all the same is refused: by the fence of the
    // other system, and by the store.
    for what in ["stopped LeaseLost", "fenced off", "settled STALE_ATTEMPT"] {
        let said = until(what, LIMIT, all(what)).await;
        assert!(said.iter().all(|said| said.process == first.id()), "{said:?}");
    }
    for id in &ids {
        let job = engine.job(*id).await?;
        assert_eq!((job.state, job.attempt, job.interruptions), (State::Succeeded, 1, 1));
        let of_job = |(job, _): &&(String, u64)| *job == id.to_string();
        let applied: Vec<u64> = outside.applied().iter().filter(of_job).map(|it| it.1).collect();
        assert_eq!(applied, [2], "it has run twice, and has had its effect once");
    }
    // All slots of the worker that woke are free.
    for enqueued in engine.enqueue_all(vec![Do::SleepMs(1); JOBS * 2]).await {
        assert!(engine.wait(enqueued?.id).await?.is_success());
    }
    first.stop().await;
    engine.close().await;
    home.check().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_process_that_was_taken_for_dead_is_vouched_for_again() -> HandlerResult {
    let cluster = Cluster::start(&Options { fsync: false, ..Options::default() });
    let home = Home::on(&cluster);
    let (engine, outside) = (home.open().await, home.outside());
    let role = Role::on(&home);
    let first = Node::start(&role);
    let id = engine.enqueue(Do::HangFirst).await?.id;
    until("the first start", LIMIT, || outside.first(id, "begun")).await;
    // Its lock is gone with the server, and it cannot take it again while it is frozen.
    first.signal("STOP");
    let second = Node::start(&role);
    cluster.restart(Stop::Immediate);
    until("the end elsewhere", LIMIT, || outside.first(id, "done")).await;
    let vouched = format!("SELECT count(*) FROM {}.sessions WHERE vouched", home.schema());
    let one_is_vouched_for = || (cluster.psql(&vouched) == "1").then_some(());
    until("the frozen process is forgotten", LIMIT, one_is_vouched_for).await;
    second.stop().await;
    first.signal("CONT");
    until("the first process is vouched for again", LIMIT, one_is_vouched_for).await;
    let id = retried(&engine, Do::HangFirst).await?;
    let begun = until("the next start", LIMIT, || outside.first(id, "begun")).await;
    assert_eq!(begun.process, first.id());
    // When it dies after all, nobody waits for its lease, which lasts ten minutes.
    let _third = Node::start(&role);
    first.kill();
    until("the next end elsewhere", LIMIT, || outside.first(id, "done")).await;
    Ok(())
}

/// Enqueues a job. The first connections that are tried may be broken.
async fn retried(engine: &Engine, what: Do) -> HandlerResult<JobId> {
    for _ in 0..20 {
        match engine.enqueue(what.clone()).await {
            Err(error) if error.is_retryable() => {}
            enqueued => return Ok(enqueued?.id),
        }
    }
    Err("the server does not come back".into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_frozen_process_does_not_hold_others_up() -> HandlerResult {
    let home = Home::postgres();
    let outside = home.outside();
    let role = |seed| Role {
        lease: Duration::from_secs(1),
        until_done: true,
        feed: Some(seed),
        ..Role::on(&home)
    };
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let frozen = Node::start(&role(chance.draw()));
    let other = Node::start(&role(chance.draw()));
    let acknowledged = || {
        let begins = format!("{} acked ", other.id());
        outside.lines().iter().filter(|line| line.starts_with(&begins)).count()
    };
    for _ in 0..random::cases(5) {
        tokio::time::sleep(chance.ms(300, 600)).await;
        // It may be in the middle of a transaction.
        frozen.signal("STOP");
        let (frozen_at, before) = (Instant::now(), acknowledged());
        let moved = || (acknowledged() > before + 20).then_some(());
        until("the other process goes on", LIMIT, moved).await;
        told("another process went on beside a frozen one after", frozen_at);
        frozen.signal("CONT");
    }
    outside.calm_down();
    for mut node in [frozen, other] {
        let status = node.ended(LIMIT).await;
        assert!(status.success(), "a node ended with {status}:\n{}", node.errors());
    }
    home.check().await;
    Ok(())
}
