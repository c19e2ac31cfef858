//! A worker that has nothing to do starts a job at once that another process enqueues.
//!
//! On PostgreSQL alone: on SQLite whoever enqueues is in the same process.

use std::time::Duration;

use windlass::HandlerResult;

use crate::{
    handlers::Do,
    home::Home,
    node::{Node, Role},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_job_of_another_process_starts_at_once() -> HandlerResult {
    let home = Home::postgres();
    // So rarely that only a wake-up can be the reason.
    let role = Role { poll: Duration::from_secs(600), ..Role::on(&home) };
    let node = Node::start(&role);
    let engine = home.open().await;
    let mut waits = Vec::new();
    for _ in 0..40 {
        // Long enough for the worker to be idle, and not in step with anything that it does.
        tokio::time::sleep(Duration::from_millis(37)).await;
        let id = engine.enqueue(Do::SleepMs(0)).await?.id;
        let job = engine.wait(id).await?.job;
        waits.push(job.started_at.unwrap().since(job.spec.created_at));
    }
    waits.sort();
    println!(
        "from enqueue to start in another process: median {:?}, longest {:?}",
        waits[20], waits[39]
    );
    assert!(waits[20] < Duration::from_secs(1), "{waits:?}");
    // On a machine that is busy with other things, too.
    assert!(waits[39] < Duration::from_secs(10), "{waits:?}");
    node.stop().await;
    Ok(())
}
