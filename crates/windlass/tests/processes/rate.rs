//! A rate is kept by all processes together, and one that is killed and restarted has no burst of its own.
//!
//! On PostgreSQL alone: on SQLite one process has the store, and `engine/rules.rs` shows that a rate outlives it.

use std::time::{Duration, Instant};

use windlass::{HandlerResult, Timestamp, rule};

use crate::{
    common::claims,
    handlers::Do,
    home::Home,
    node::{Node, Role},
};

/// So many may begin in a second.
const RATE: f64 = 20.0;
/// What half a second brings, if nothing is said.
const BURST: f64 = 10.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rate_is_kept_by_three_processes_and_a_restart_gives_no_burst() -> HandlerResult {
    let home = Home::postgres();
    let (engine, outside) = (home.open().await, home.outside());
    engine.put_rule(rule("rate").rate(20, Duration::from_secs(1))).await?;
    let requests = vec![Do::SleepMs(1); 400];
    engine.enqueue_all(requests).await.into_iter().try_for_each(|it| it.map(drop))?;
    let role = Role { poll: Duration::from_secs(600), ..Role::on(&home) };
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start(&role)).collect();
    let (from, before) = (Instant::now(), outside.begun_since(0).count());
    tokio::time::sleep(Duration::from_secs(5)).await;
    nodes.remove(0).kill();
    nodes.push(Node::start(&role));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (begun, time) = (outside.begun_since(0).count() - before, from.elapsed());
    for node in nodes {
        node.stop().await;
    }
    println!("{begun} began within {time:?}");
    let expected = RATE * time.as_secs_f64();
    let is_kept = (0.9 * expected..=expected + BURST).contains(&(begun as f64));
    assert!(is_kept, "{begun} within {time:?}");
    check(&claims(&engine, &outside).await?);
    engine.close().await;
    home.check().await;
    Ok(())
}

/// In any time no more are claimed than the rate and the burst allow: whoever had a burst of its own would be found
/// out, for the others leave none.
fn check(claims: &[Timestamp]) {
    for (place, from) in claims.iter().enumerate() {
        for (count, to) in claims[place..].iter().enumerate() {
            let (time, count) = (to.since(*from), count + 1);
            let allowed = RATE * time.as_secs_f64() + BURST;
            assert!(count as f64 <= allowed + 0.001, "{count} within {time:?} from {from}");
        }
    }
}
