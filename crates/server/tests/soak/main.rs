//! A day of faults over HTTP: a server on a SQLite file and three worker processes. Handlers do anything, workers are
//! killed and frozen, and so is the server; in the end nothing is lost, stuck or against the rules.
//!
//! The day itself, its nodes and what they do are those of the engine's own tests; here their store is a server. The
//! first of the workers is left alone all day, and the server in the middle of it: their memory is looked at.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

#[path = "../../../windlass/tests/processes/balancer.rs"]
mod balancer;
#[path = "../../../windlass/tests/processes/common.rs"]
#[expect(dead_code, unused_imports, unused_macros, reason = "the engine's tests use more of it")]
mod common;
#[path = "../../../windlass/tests/processes/day.rs"]
mod day;
#[path = "../../../windlass/tests/processes/handlers.rs"]
mod handlers;
#[path = "../../../windlass/tests/processes/home.rs"]
#[expect(dead_code, reason = "the engine's tests use more of it")]
mod home;
mod host;
#[path = "../../../windlass/tests/processes/node.rs"]
#[expect(dead_code, reason = "the engine's tests use more of it")]
mod node;
#[path = "../../../windlass/tests/processes/outside.rs"]
#[expect(dead_code, reason = "the engine's tests use more of it")]
mod outside;
#[path = "../http/server.rs"]
#[expect(dead_code, reason = "the tests of HTTP use more of it")]
mod server;

use windlass::HandlerResult;

use crate::{
    day::{check, live_through},
    home::Home,
    host::Host,
    node::{Node, Role},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_of_faults_over_http() -> HandlerResult {
    let home = Home::sqlite();
    let mut host = Host::start(&home);
    let role = Role { url: host.url(), ..Role::on(&home) };
    let mut turn = 0..;
    live_through(&role, 3, |node, role, chance| match turn.next().unwrap() % 3 {
        0 if !host.is_left_alone() => (host.injure(chance), node),
        1 if chance.percent(50) => {
            // Mostly its lease runs out meanwhile.
            node.freeze(chance.ms(1_000, 5_000));
            ("freezes", node)
        }
        _ => {
            host.look();
            node.kill();
            ("kills", Node::start(role))
        }
    })
    .await;
    host.stop();
    check(&home).await
}
