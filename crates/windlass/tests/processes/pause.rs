//! A pause that is set anywhere stops every worker at once, and its end wakes them at once.
//!
//! On PostgreSQL the workers are in processes of their own. On SQLite whoever sets a rule is in the same process.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use windlass::{Engine, HandlerResult, Worker, rule};

use crate::{
    common::{claims, for_each_store, until},
    handlers::{Do, act},
    home::Home,
    node::{Node, Role, told},
    outside::Outside,
};

for_each_store!(a_pause_stops_every_worker_and_its_end_wakes_them);

const LIMIT: Duration = Duration::from_secs(60);

async fn a_pause_stops_every_worker_and_its_end_wakes_them(home: Home) -> HandlerResult {
    let (engine, outside) = (home.open().await, home.outside());
    // So rarely that only a wake-up can be the reason.
    let role = Role { poll: Duration::from_secs(600), concurrency: 2, ..Role::on(&home) };
    let (nodes, workers) = three_workers(&engine, &home, &role).await?;
    let requests = vec![Do::SleepMs(20); 1_500];
    engine.enqueue_all(requests).await.into_iter().try_for_each(|it| it.map(drop))?;
    let mut seen = 0;
    for _ in 0..5 {
        until("every worker runs", LIMIT, || three_began(&outside, seen)).await;
        let asked_at = Instant::now();
        engine.put_rule(rule("stop").pause()).await?;
        let took = asked_at.elapsed();
        // By the store's clock it is later now.
        let late = engine.enqueue(Do::SleepMs(20)).await?.id;
        let paused_at = engine.job(late).await?.spec.created_at;
        seen = quiet(&outside).await;
        let last = claims(&engine, &outside).await?.pop().unwrap();
        println!("a pause was set within {took:?}, the last claim {:?} ago", paused_at.since(last));
        // A claim that had looked at the rules just before may commit just after.
        let in_flight = paused_at.plus(Duration::from_secs(1));
        assert!(last < in_flight, "a claim at {last} during a pause from {paused_at}");

        let dropped_at = Instant::now();
        engine.drop_rule("stop", None).await?;
        until("every worker runs again", LIMIT, || three_began(&outside, seen)).await;
        let took = told("after a pause every worker ran again within", dropped_at);
        assert!(took < Duration::from_secs(10), "{took:?}");
    }
    for node in nodes {
        node.stop().await;
    }
    for worker in workers {
        worker.shutdown().await?;
    }
    engine.close().await;
    home.check().await;
    Ok(())
}

/// Three workers: in processes of their own, or beside this engine where only one process can have the store.
async fn three_workers(
    engine: &Engine,
    home: &Home,
    role: &Role,
) -> HandlerResult<(Vec<Node>, Vec<Worker>)> {
    if !home.is_sqlite() {
        return Ok(((0..3).map(|_| Node::start(role)).collect(), Vec::new()));
    }
    let mut workers = Vec::new();
    for _ in 0..3 {
        let worker = engine.worker().state(Arc::new(home.outside())).handle(act);
        let worker = worker.concurrency(role.concurrency).lease(role.lease).poll(role.poll);
        workers.push(worker.start().await?);
    }
    Ok((Vec::new(), workers))
}

/// Has each of the three workers begun something after so many lines?
fn three_began(outside: &Outside, seen: usize) -> Option<()> {
    let workers: BTreeSet<String> = outside.begun_since(seen).map(|said| said.worker).collect();
    (workers.len() == 3).then_some(())
}

/// Waits until nothing happens outside, and gives back how many lines there are.
async fn quiet(outside: &Outside) -> usize {
    loop {
        let before = outside.lines().len();
        tokio::time::sleep(Duration::from_millis(300)).await;
        if outside.lines().len() == before {
            return before;
        }
    }
}
