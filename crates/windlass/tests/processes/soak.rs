//! A long day: handlers do anything, processes are killed and frozen, the server crashes, and in the end nothing is
//! lost, stuck or against the rules.
//!
//! Nodes enqueue jobs as well as run them, and note which were acknowledged. With `WINDLASS_DEEP` the day has ten
//! minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use windlass::{Engine, HandlerResult};
use windlass_kernel::TenantId;
use windlass_store::read::{Cursor, JobFilter};
use windlass_testkit::{
    postgres::{Cluster, Options, Stop},
    random::{self, Chance},
};

use crate::{
    home::Home,
    node::{Node, Role},
};

const LEASE: Duration = Duration::from_secs(2);
/// How long jobs may take to come to their ends when they are left alone.
const CALM: Duration = Duration::from_secs(60);

fn is_deep() -> bool {
    env::var_os("WINDLASS_DEEP").is_some()
}

fn day() -> Duration {
    if is_deep() { Duration::from_secs(600) } else { Duration::from_secs(10) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_of_faults_on_sqlite() -> HandlerResult {
    let home = Home::sqlite();
    live_through(&home, 1, |node, role, _| {
        node.kill();
        ("kills", Node::start(role))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_of_faults_on_postgres() -> HandlerResult {
    let cluster = Cluster::start(&Options { fsync: false, ..Options::default() });
    let home = Home::on(&cluster);
    live_through(&home, 3, |node, role, chance| match chance.below(10) {
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
            node.signal("STOP");
            std::thread::sleep(chance.ms(0, 4_000));
            node.signal("CONT");
            ("freezes", node)
        }
        _ => {
            node.kill();
            ("kills", Node::start(role))
        }
    })
    .await
}

/// Keeps so many nodes busy for a day, and has one of them injured every now and then: never the first of several,
/// whose memory is looked at.
async fn live_through(
    home: &Home,
    count: usize,
    mut injure: impl FnMut(Node, &Role, &mut Chance) -> (&'static str, Node),
) -> HandlerResult {
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    let mut chance = Chance::new(seed);
    let role = |chance: &mut Chance| Role {
        lease: LEASE,
        until_done: true,
        feed: Some(chance.draw()),
        ..Role::on(home)
    };
    let mut nodes: Vec<Node> = (0..count).map(|_| Node::start(&role(&mut chance))).collect();
    let (began, mut injuries) = (Instant::now(), BTreeMap::<&str, u32>::new());
    let mut warm_kb = None;
    while began.elapsed() < day() {
        tokio::time::sleep(chance.ms(300, 2_000)).await;
        let role = role(&mut chance);
        let node = nodes.remove(nodes.len() - 1);
        let (what, node) = injure(node, &role, &mut chance);
        nodes.insert(count.min(2) - 1, node);
        *injuries.entry(what).or_default() += 1;
        if began.elapsed() > day() / 5 {
            warm_kb.get_or_insert_with(|| resident_kb(nodes[0].id()));
        }
    }
    let late_kb = resident_kb(nodes[0].id());
    home.outside().calm_down();
    let calm_at = Instant::now();
    for mut node in nodes {
        let Ok(status) = timeout(CALM, node.ended(CALM * 2)).await else {
            panic!("after {CALM:?} of calm there are still {}", stuck(home).await)
        };
        assert!(status.success(), "a node ended with {status}:\n{}", node.errors());
    }
    println!("{injuries:?}; all jobs at their ends after {:?} of calm", calm_at.elapsed());
    check(home).await?;
    // On SQLite no node lives long.
    if let Some(warm_kb) = warm_kb.filter(|_| count > 1) {
        println!("resident memory: {warm_kb} kB when it was warm, {late_kb} kB at the end");
        assert!(!is_deep() || late_kb < warm_kb + warm_kb / 4 + 10_000, "memory has grown");
    }
    Ok(())
}

/// What is not at its end, as far as it can be seen while nodes run.
async fn stuck(home: &Home) -> String {
    if home.is_sqlite() {
        return "jobs in the hands of a node".to_owned();
    }
    let open = home.open().await.store().open_jobs().await.unwrap();
    format!("{} jobs: {:#?}", open.len(), &open[..open.len().min(3)])
}

/// Whatever was acknowledged is there and at its end, and no rule is broken.
async fn check(home: &Home) -> HandlerResult {
    let engine = home.open().await;
    let open = engine.store().open_jobs().await?;
    assert!(open.is_empty(), "{} jobs are stuck, such as {:?}", open.len(), open[0]);
    let held: u64 = engine.store().sessions().await?.iter().map(|session| session.held).sum();
    assert_eq!(held, 0);
    let (known, states) = read_all(&engine).await?;
    let lines = home.outside().lines();
    let acknowledged = lines.iter().filter_map(|line| Some(line.split_once(" acked ")?.1));
    let acknowledged: BTreeSet<&str> = acknowledged.collect();
    let lost: Vec<_> = acknowledged.iter().filter(|id| !known.contains(**id)).collect();
    assert!(lost.is_empty(), "{} jobs are lost, such as {}", lost.len(), lost[0]);
    println!("{} jobs acknowledged, and their ends: {states:?}", acknowledged.len());
    assert!(acknowledged.len() > 200, "too few to prove anything");
    engine.close().await;
    home.check().await;
    Ok(())
}

/// The ids of all jobs, and how many are in which state.
async fn read_all(engine: &Engine) -> HandlerResult<(BTreeSet<String>, BTreeMap<String, usize>)> {
    let filter = JobFilter::of(TenantId::new(Engine::TENANT_DEFAULT)?);
    let (mut ids, mut states) = (BTreeSet::new(), BTreeMap::new());
    let mut cursor = Cursor { from: None, limit: Cursor::LIMIT_MAX };
    loop {
        let page = engine.store().jobs(filter.clone(), cursor).await?;
        for job in page.items {
            *states.entry(job.state.to_string()).or_default() += 1;
            ids.insert(job.id.to_string());
        }
        cursor.from = page.next;
        if cursor.from.is_none() {
            return Ok((ids, states));
        }
    }
}

/// The resident memory of a process, in kilobytes.
fn resident_kb(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}
