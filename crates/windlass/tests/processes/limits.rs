//! A limit holds wherever the workers are and whichever of them die, and after every crash its slots come back.
//!
//! On PostgreSQL three processes share the rules. On SQLite it is one process with three workers. All leases last ten
//! minutes: a slot that comes free after a crash does so because its holder is proven dead.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::sync::watch;
use windlass::{
    Context, Each, Engine, HandlerResult, JobId, JobRequest, State, job, rule, why::Reason,
};
use windlass_kernel::admit::Because;
use windlass_testkit::random::{self, Chance};

use crate::{
    common::{for_each_store, until},
    handlers::Do,
    home::Home,
    node::{Node, Role},
    outside::Outside,
    watch::{Keys, Watch},
};

for_each_store!(a_limit_holds_and_its_slots_come_back_whoever_is_killed);

const LIMIT: Duration = Duration::from_secs(60);
/// How long processes are killed.
const KILLS: Duration = Duration::from_secs(15);
/// How long a key may stand still after a crash. One that has a job which has to be alone may need ten seconds more.
const RECOVERY: Duration = Duration::from_secs(30);
const KEYS: usize = 12;
const TOGETHER: usize = 5;
/// So many jobs there are while processes are killed.
const OPEN: usize = KEYS * 20;

async fn a_limit_holds_and_its_slots_come_back_whoever_is_killed(home: Home) -> HandlerResult {
    let seed = u64::from_be_bytes(random::seed()[..8].try_into().unwrap());
    let (mut chance, outside) = (Chance::new(seed), home.outside());
    let engine = home.open().await;
    engine.put_rule(rule("key").queue("default").each(Each::Key).at_most(1)).await?;
    engine.put_rule(rule("together").queue("default").at_most(5)).await?;
    engine.close().await;
    let mut keys = Keys::new();
    let (crashes, longest) = kill_by_chance(&home, &mut keys, &mut chance).await?;
    let mut last = Node::start(&Role { until_done: true, ..crew(&home).1 });
    let status = last.ended(LIMIT).await;
    assert!(status.success(), "a node ended with {status}:\n{}", last.errors());

    let seen = Watch::over(&outside, &keys);
    println!(
        "{} jobs, {crashes} crashes, {} of {} executions interrupted; at once at the most {}, and {} of a \
         key; after a crash all keys went on within {longest:?}",
        keys.len(),
        seen.interrupted,
        seen.begun,
        seen.most,
        seen.most_of_key
    );
    assert_eq!((seen.most, seen.most_of_key), (TOGETHER, 1));
    assert!(seen.interrupted >= 3, "too few to prove anything");
    all_succeeded(&home, &keys).await?;
    every_slot_is_free(&home).await?;
    home.check().await;
    Ok(())
}

/// Some processes were killed.
struct Crash {
    at: Instant,
    /// The lines that there were then.
    seen: usize,
    /// The keys of what they ran.
    held: BTreeSet<String>,
}

impl Crash {
    /// Has each key that was held begun again?
    fn is_over(&self, outside: &Outside, keys: &Keys) -> bool {
        let begun = outside.begun_since(self.seen).map(|said| keys[&said.job].clone());
        self.held.is_subset(&begun.collect())
    }
}

/// Kills and restarts processes for a while, and stops them. Gives back how many crashes there were, and the longest time
/// until all keys of one went on.
async fn kill_by_chance(
    home: &Home,
    keys: &mut Keys,
    chance: &mut Chance,
) -> HandlerResult<(usize, Duration)> {
    let outside = home.outside();
    top_up(home, keys, chance).await?;
    let (count, role) = crew(home);
    let mut nodes: Vec<Node> = (0..count).map(|_| Node::start(&role)).collect();
    let (began, mut crashes, mut longest) = (Instant::now(), 0, Duration::ZERO);
    let (day, mut open) = (KILLS * random::cases(1), Vec::<Crash>::new());
    while began.elapsed() < day || !open.is_empty() {
        // On PostgreSQL it takes two seconds to prove a death, and somebody has to live so long.
        tokio::time::sleep(chance.ms(50, if home.is_sqlite() { 450 } else { 1_500 })).await;
        if began.elapsed() < day {
            // Usually one, and now and then all of them.
            nodes.rotate_left(usize::try_from(chance.below(count as u64))?);
            let doomed = nodes.split_off(if chance.percent(85) { count - 1 } else { 0 });
            let dead = doomed.len();
            open.push(kill(doomed, &outside, keys));
            crashes += 1;
            top_up(home, keys, chance).await?;
            nodes.extend((0..dead).map(|_| Node::start(&role)));
        }
        for crash in open.extract_if(.., |crash| crash.is_over(&outside, keys)) {
            longest = longest.max(crash.at.elapsed());
        }
        let stuck = open.iter().find(|crash| crash.at.elapsed() > RECOVERY);
        assert!(stuck.is_none(), "one of {:?} does not go on", stuck.map(|crash| &crash.held));
    }
    for node in nodes {
        node.stop().await;
    }
    Ok((crashes, longest))
}

/// How many processes a store has, and what each of them does.
fn crew(home: &Home) -> (usize, Role) {
    let (count, workers) = if home.is_sqlite() { (1, 3) } else { (3, 1) };
    (count, Role { workers, concurrency: 4, ..Role::on(home) })
}

/// Enqueues jobs of all keys that take a moment, so that there are always many. On SQLite no node may run meanwhile.
async fn top_up(home: &Home, keys: &mut Keys, chance: &mut Chance) -> HandlerResult {
    let engine = home.open().await;
    let done = home.outside().said().iter().filter(|said| said.what == "done").count();
    let missing = (done + OPEN).saturating_sub(keys.len());
    let of_key: Vec<String> = (0..missing).map(|place| key(place % KEYS)).collect();
    let request = |key: &String| {
        let ms = 5 + chance.below(96);
        job(Do::SleepMs(ms)).limit_key(key).max_interruptions(100)
    };
    let requests: Vec<JobRequest> = of_key.iter().map(request).collect();
    for (enqueued, key) in engine.enqueue_all(requests).await.into_iter().zip(of_key) {
        keys.insert(enqueued?.id.to_string(), key);
    }
    engine.close().await;
    Ok(())
}

fn key(number: usize) -> String {
    format!("k{number}")
}

/// Kills processes, and tells the observer.
fn kill(nodes: Vec<Node>, outside: &Outside, keys: &Keys) -> Crash {
    let at = Instant::now();
    let processes: Vec<u32> = nodes.iter().map(Node::id).collect();
    for process in &processes {
        outside.note(&format!("killing {process}"));
    }
    nodes.into_iter().for_each(Node::kill);
    let held = Watch::over(outside, keys).held_by(&processes, keys);
    for process in &processes {
        outside.note(&format!("dead {process}"));
    }
    Crash { at, seen: outside.lines().len(), held }
}

async fn all_succeeded(home: &Home, keys: &Keys) -> HandlerResult {
    let engine = home.open().await;
    for id in keys.keys() {
        let job = engine.job(id.parse()?).await?;
        assert_eq!(job.state, State::Succeeded, "{job:?}");
    }
    let held: u64 = engine.store().sessions().await?.iter().map(|session| session.held).sum();
    assert_eq!(held, 0);
    engine.close().await;
    Ok(())
}

/// A worker that could run anything gets exactly as many as the rules say, and one of each key when only that is said;
/// and a job that waits is told for whom.
async fn every_slot_is_free(home: &Home) -> HandlerResult {
    let engine = Engine::open(&home.url).await?;
    let begun = Arc::new(Mutex::new(BTreeMap::<String, JobId>::new()));
    let (let_go, wait) = watch::channel(false);
    let noted = begun.clone();
    let handler = move |_: Do, context: Context| {
        let (noted, mut wait) = (noted.clone(), wait.clone());
        async move {
            let key = context.job().spec.limit_key.as_ref().unwrap().to_string();
            noted.lock().unwrap().entry(key).or_insert(context.job_id());
            wait.wait_for(|may_go| *may_go).await?;
            HandlerResult::Ok(())
        }
    };
    let worker = engine.worker().concurrency(KEYS * 4).handle(handler).start().await?;
    let mut ids = Vec::new();
    let requests = (0..KEYS * 2).map(|place| job(Do::SleepMs(0)).limit_key(&key(place % KEYS)));
    for enqueued in engine.enqueue_all(requests).await {
        ids.push(enqueued?.id);
    }
    let run = |count| {
        let begun = begun.clone();
        move || (begun.lock().unwrap().len() == count).then_some(())
    };
    until("five run", LIMIT, run(TOGETHER)).await;
    let holders: BTreeSet<JobId> = begun.lock().unwrap().values().copied().collect();
    let waits = *ids.iter().find(|id| !holders.contains(id)).unwrap();
    assert_eq!(
        held_up_by(&engine, waits, "together").await?,
        (Because::NoSlot { max: 5, held: 5 }, holders)
    );

    engine.drop_rule("together", None).await?;
    until("one of each key runs", LIMIT, run(KEYS)).await;
    let holders = begun.lock().unwrap().clone();
    let running: BTreeSet<JobId> = holders.values().copied().collect();
    for (place, id) in ids.iter().enumerate().filter(|(_, id)| !running.contains(id)) {
        let holder = holders[&key(place % KEYS)];
        let expected = (Because::NoSlot { max: 1, held: 1 }, BTreeSet::from([holder]));
        assert_eq!(held_up_by(&engine, *id, "key").await?, expected);
    }
    let_go.send_replace(true);
    for id in ids {
        assert!(engine.wait(id).await?.is_success());
    }
    worker.shutdown().await?;
    engine.close().await;
    Ok(())
}

/// In which way this rule keeps a job, and who holds what it waits for.
async fn held_up_by(
    engine: &Engine,
    id: JobId,
    name: &str,
) -> HandlerResult<(Because, BTreeSet<JobId>)> {
    let why = engine.why(id).await?;
    let words = why.to_string();
    let reason = why.reasons.into_iter().find_map(|reason| match reason {
        Reason::Rule { blocked, holders, .. } if blocked.rule.as_str() == name => {
            Some((blocked.because, holders))
        }
        _ => None,
    });
    let (because, holders) = reason.ok_or(words)?;
    Ok((because, holders.into_iter().map(|holder| holder.job_id).collect()))
}
