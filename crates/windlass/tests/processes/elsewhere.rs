//! Workers whose calls reach any node, and no fault at all: nobody is told that a live lease is over, nor that a job is
//! still at work that has come to its end.
//!
//! On PostgreSQL alone, where there are several nodes. It takes some seconds, and some minutes with `WINDLASS_DEEP`.

use std::{env, time::Duration};

use windlass::HandlerResult;

use crate::{
    day::check,
    home::Home,
    node::{Node, Role},
};

/// So many jobs are enqueued, however long it takes on a machine that is busy with other things.
fn jobs() -> usize {
    if env::var_os("WINDLASS_DEEP").is_some() { 30_000 } else { 500 }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn without_a_fault_nobody_is_refused_for_no_reason() -> HandlerResult {
    let home = Home::postgres();
    let lease = Duration::from_secs(10);
    let role = Role { nodes: 2, concurrency: 24, lease, until_done: true, ..Role::on(&home) };
    let mut nodes: Vec<Node> =
        (1..=2).map(|seed| Node::start(&Role { feed: Some(seed), ..role.clone() })).collect();
    let outside = home.outside();
    let acked = || outside.lines().iter().filter(|line| line.contains(" acked ")).count();
    while acked() < jobs() {
        let ended = nodes.iter_mut().find_map(Node::exited);
        assert!(ended.is_none(), "a node ended by itself:\n{}", nodes[0].errors());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    outside.calm_down();
    for mut node in nodes {
        let status = node.ended(Duration::from_secs(600)).await;
        assert!(status.success(), "a node ended with {status}:\n{}", node.errors());
    }
    check(&home).await
}
