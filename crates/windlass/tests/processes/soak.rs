//! A day of faults on each store: handlers do anything, processes are killed and frozen, the server crashes.
//!
//! On SQLite one process has the file, and is killed again and again. Three workers of a server that has it are in the
//! server's own tests.

use windlass::HandlerResult;
use windlass_testkit::postgres::{Cluster, Options, Stop};

use crate::{
    day::{check, live_through},
    home::Home,
    node::{Node, Role},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_of_faults_on_sqlite() -> HandlerResult {
    let home = Home::sqlite();
    live_through(&Role::on(&home), 1, |node, role, _| {
        node.kill();
        ("kills", Node::start(role))
    })
    .await;
    check(&home).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_of_faults_on_postgres() -> HandlerResult {
    let cluster = Cluster::start(&Options { fsync: false, ..Options::default() });
    let home = Home::on(&cluster);
    // Each process has two nodes, and its workers call now one and now the other.
    let role = Role { nodes: 2, ..Role::on(&home) };
    live_through(&role, 3, |node, role, chance| match chance.below(10) {
        0 => {
            cluster.restart(Stop::Immediate);
            ("crashes of the server", node)
        }
        1 => {
            cluster.stop(Stop::Immediate);
            std::thread::sleep(chance.ms(0, 4_000));
            cluster.restart(Stop::Immediate);
            ("outages", node)
        }
        2..5 => {
            node.freeze(chance.ms(0, 4_000));
            ("freezes", node)
        }
        _ => {
            node.kill();
            ("kills", Node::start(role))
        }
    })
    .await;
    check(&home).await
}
