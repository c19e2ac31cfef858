//! A process that is frozen past its lease has lost what it held: when it wakes it changes nothing any more.
//!
//! On PostgreSQL alone. A frozen process keeps its locks, so on SQLite nobody else can have the file.

use std::time::Duration;

use windlass::{HandlerResult, JobId, State};

use crate::{
    common::until,
    handlers::Do,
    home::Home,
    node::{Node, Role},
};

const JOBS: usize = 5;
const LIMIT: Duration = Duration::from_secs(20);

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
