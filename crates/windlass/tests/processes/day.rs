//! A day of faults: nodes are busy while they are killed and frozen. Then it is calm, all jobs come to their ends, and
//! nothing is lost, stuck or against the rules.
//!
//! Nodes enqueue jobs as well as run them, and note which were acknowledged. The day has thirty seconds, and with
//! `WINDLASS_DEEP` ten minutes.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use windlass::{Engine, HandlerResult, Scope};
use windlass_store::read::{JobFilter, PageFrom};
use windlass_testkit::{
    random::{self, Chance},
    refusals::{self, Step},
};

use crate::{
    home::Home,
    node::{Node, Role, open_jobs},
    outside::Outside,
};

const LEASE: Duration = Duration::from_secs(2);
/// So many handlers run in a node that mostly nothing piles up: what is looked at is a day, not a backlog.
const CONCURRENCY: usize = 24;
/// How long jobs may take to come to their ends when they are left alone.
const CALM: Duration = Duration::from_secs(60);

fn is_deep() -> bool {
    env::var_os("WINDLASS_DEEP").is_some()
}

/// How long it is.
pub(crate) fn day() -> Duration {
    Duration::from_secs(if is_deep() { 600 } else { 30 })
}

/// Keeps so many nodes busy for a day, and has one of them injured every now and then: never the first of several,
/// whose memory is looked at. Then waits until all jobs are at their ends.
pub(crate) async fn live_through(
    role: &Role,
    count: usize,
    mut injure: impl FnMut(Node, &Role, &mut Chance) -> (&'static str, Node),
) {
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    let mut chance = Chance::new(seed);
    let busy = |chance: &mut Chance| {
        let feed = Some(chance.draw());
        Role { lease: LEASE, concurrency: CONCURRENCY, until_done: true, feed, ..role.clone() }
    };
    let mut nodes: Vec<Node> = (0..count).map(|_| Node::start(&busy(&mut chance))).collect();
    let (began, mut injuries) = (Instant::now(), BTreeMap::<&str, u32>::new());
    let mut memory = Memory::default();
    while began.elapsed() < day() {
        tokio::time::sleep(chance.ms(300, 2_000)).await;
        let busy = busy(&mut chance);
        let mut node = nodes.remove(nodes.len() - 1);
        assert!(node.exited().is_none(), "a node ended by itself:\n{}", node.errors());
        let (what, node) = injure(node, &busy, &mut chance);
        nodes.insert(count.min(2) - 1, node);
        *injuries.entry(what).or_default() += 1;
        if count > 1 && began.elapsed() > day() / 5 {
            memory.look_at(nodes[0].id());
        }
    }
    Outside::at(&role.folder).calm_down();
    let calm_at = Instant::now();
    for mut node in nodes {
        let Ok(status) = timeout(CALM, node.ended(CALM * 2)).await else {
            panic!("after {CALM:?} of calm there are still {}", stuck(role).await)
        };
        assert!(status.success(), "a node ended with {status}:\n{}", node.errors());
    }
    println!("{injuries:?}; all jobs at their ends after {:?} of calm", calm_at.elapsed());
    memory.check("a node");
}

/// What is not at its end, as far as it can be seen while nodes run.
async fn stuck(role: &Role) -> String {
    if role.url.starts_with("sqlite:") {
        return "jobs in the hands of a node".to_owned();
    }
    let engine = Engine::open(&role.url).await.unwrap();
    let cursor = PageFrom { from: None, limit: PageFrom::LIMIT_MAX };
    let open = engine.store().jobs(open_jobs(), cursor).await.unwrap().items;
    format!("{} jobs: {:#?}", open.len(), &open[..open.len().min(3)])
}

/// Whatever was acknowledged is there and at its end, and no rule is broken. On SQLite nobody may have the file open.
pub(crate) async fn check(home: &Home) -> HandlerResult {
    let engine = home.open().await;
    let open = engine.own_store().unwrap().open_jobs().await?;
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
    check_refusals(&engine, &home.outside()).await?;
    engine.close().await;
    home.check().await;
    Ok(())
}

/// Whoever was refused something was told the truth: the history says why.
pub(crate) async fn check_refusals(engine: &Engine, outside: &Outside) -> HandlerResult {
    let refused = outside.refused();
    let (mut history, mut after) = (Vec::new(), 0);
    loop {
        let feed = engine.own_store().unwrap().feed(&Scope::Every, after, 1_000).await?;
        let Some(last) = feed.events.last() else { break };
        after = last.number;
        let steps = feed.events.iter().filter_map(|it| Some(Step::of(it.number, &it.event()?)));
        history.extend(steps);
    }
    let unfounded = refusals::unfounded(&refused, history);
    println!("{} refusals, {} of them for no reason", refused.len(), unfounded.len());
    assert!(unfounded.is_empty(), "refused for no reason: {unfounded:?}");
    Ok(())
}

/// The ids of all jobs, and how many are in which state.
async fn read_all(engine: &Engine) -> HandlerResult<(BTreeSet<String>, BTreeMap<String, usize>)> {
    let filter = JobFilter::of(Scope::Every);
    let (mut ids, mut states) = (BTreeSet::new(), BTreeMap::new());
    let mut cursor = PageFrom { from: None, limit: PageFrom::LIMIT_MAX };
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

/// The resident memory of a process that lives on.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// When it was looked at first and last, in kilobytes.
    seen: Option<(u64, u64)>,
}

impl Memory {
    /// Looks at it. It should be warm by now.
    pub(crate) fn look_at(&mut self, process: u32) {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let now_kb = line.split_whitespace().next().unwrap().parse().unwrap();
        self.seen = Some((self.seen.map_or(now_kb, |(warm_kb, _)| warm_kb), now_kb));
    }

    /// After a long day it must not have grown. A short one is too short to tell.
    pub(crate) fn check(&self, whose: &str) {
        let Some((warm_kb, late_kb)) = self.seen else { return };
        println!("memory of {whose}: {warm_kb} kB when it was warm, {late_kb} kB at the end");
        assert!(!is_deep() || late_kb < warm_kb + warm_kb / 4 + 10_000, "it has grown");
    }
}
