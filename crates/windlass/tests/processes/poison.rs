//! A job that takes its process down each time is found out, set apart and given up; its neighbours all succeed.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use windlass::{HandlerResult, JobId, Scope, State};
use windlass_kernel::failure::INTERRUPTED_TOO_OFTEN;

use crate::{
    common::for_each_store,
    handlers::Do,
    home::Home,
    node::{Node, Role, told},
    outside::Outside,
};

for_each_store!(a_poison_job_ends_as_a_dead_letter_and_its_neighbours_succeed);

const NEIGHBOURS: usize = 50;

async fn a_poison_job_ends_as_a_dead_letter_and_its_neighbours_succeed(
    home: Home,
) -> HandlerResult {
    let engine = home.open().await;
    let mut jobs = vec![Do::SleepMs(30); NEIGHBOURS];
    jobs.insert(3, Do::Abort);
    let mut ids: Vec<JobId> = Vec::new();
    for enqueued in engine.enqueue_all(jobs).await {
        ids.push(enqueued?.id);
    }
    let poison = ids.remove(3);
    engine.close().await;

    let began = Instant::now();
    let nodes = if home.is_sqlite() { 1 } else { 2 };
    let role = Role { until_done: true, ..Role::on(&home) };
    let aborts = restart_until_done(&role, nodes).await;
    told("a poison job and its neighbours came to their ends within", began);

    let engine = home.open().await;
    for id in ids {
        let job = engine.job(id).await?;
        assert_eq!(job.state, State::Succeeded, "{job:?}");
    }
    let job = engine.job(poison).await?;
    assert_eq!(job.state, State::Failed);
    assert_eq!(aborts, job.spec.max_interruptions, "each start took a process down");
    assert_eq!(job.error.unwrap().code, INTERRUPTED_TOO_OFTEN);
    let letter = engine.store().letter(&Scope::Every, job.dlq_id.unwrap()).await?.unwrap();
    assert_eq!((letter.job_id, letter.failure.code.as_str()), (poison, INTERRUPTED_TOO_OFTEN));
    engine.close().await;
    check_alone(&home.outside(), poison, aborts);
    home.check().await;
    Ok(())
}

/// Keeps so many nodes running until they find nothing more to do, and gives back how many were taken down.
async fn restart_until_done(role: &Role, count: usize) -> u32 {
    let began = Instant::now();
    let mut nodes: Vec<Node> = (0..count).map(|_| Node::start(role)).collect();
    let mut aborts = 0;
    while !nodes.is_empty() {
        assert!(began.elapsed() < Duration::from_secs(120), "jobs are stuck");
        let mut left = Vec::new();
        for mut node in nodes {
            match node.exited() {
                None => left.push(node),
                Some(status) if status.success() => {}
                Some(_) => {
                    aborts += 1;
                    left.push(Node::start(role));
                }
            }
        }
        nodes = left;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    aborts
}

/// From the second interruption on, nothing else runs in the process in which the job starts.
fn check_alone(outside: &Outside, poison: JobId, starts: u32) {
    let poison = poison.to_string();
    let (mut running, mut seen) = (BTreeSet::new(), 0);
    for said in outside.said() {
        if said.job == poison {
            seen += 1;
            let beside = running.iter().filter(|(process, _)| *process == said.process).count();
            assert!(seen <= 2 || beside == 0, "{beside} neighbours at start {seen}");
        } else if said.what == "begun" {
            running.insert((said.process, said.job));
        } else {
            running.remove(&(said.process, said.job));
        }
    }
    assert_eq!(seen, starts);
}
