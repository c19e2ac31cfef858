//! Rules hold wherever the workers are, and whichever of them die: limits, pauses and rates.
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
    Context, Each, Engine, HandlerResult, JobId, JobRequest, State, Timestamp, Worker, job, rule,
    why::Reason,
};
use windlass_kernel::{admit::Because, event::Fact};
use windlass_testkit::random::{self, Chance};

use crate::{
    common::{for_each_store, until},
    handlers::{Do, act},
    home::Home,
    node::{Node, Role, told},
    outside::{Outside, Said},
    watch::{Keys, Watch},
};

for_each_store!(
    a_limit_holds_and_its_slots_come_back_whoever_is_killed,
    a_pause_stops_every_worker_and_its_end_wakes_them,
);

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
    assert!(seen.interrupted > 5, "too few to prove anything");
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
        let begun = begun_since(outside, self.seen).map(|said| keys[&said.job].clone());
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
    let mut open: Vec<Crash> = Vec::new();
    while began.elapsed() < KILLS || !open.is_empty() {
        // On PostgreSQL it takes two seconds to prove a death, and somebody has to live so long.
        tokio::time::sleep(chance.ms(50, if home.is_sqlite() { 450 } else { 1_200 })).await;
        if began.elapsed() < KILLS {
            // Usually one, and now and then all of them.
            let place = usize::try_from(chance.below(3))? % count;
            nodes.rotate_left(place);
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

/// What began after so many lines.
fn begun_since(outside: &Outside, seen: usize) -> impl Iterator<Item = Said> {
    let later = outside.lines().into_iter().skip(seen);
    later.filter_map(|line| Said::parse(&line)).filter(|said| said.what == "begun")
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

async fn a_pause_stops_every_worker_and_its_end_wakes_them(home: Home) -> HandlerResult {
    let (engine, outside) = (home.open().await, home.outside());
    // So rarely that only a wake-up can be the reason.
    let role = Role { poll: Duration::from_secs(600), concurrency: 2, ..Role::on(&home) };
    let (nodes, workers) = three_workers(&engine, &home, &role).await?;
    let requests = vec![Do::SleepMs(20); 1_500];
    engine.enqueue_all(requests).await.into_iter().try_for_each(|it| it.map(drop))?;
    let mut seen = 0;
    for _ in 0..5 {
        let three_run = || (workers_since(&outside, seen).len() == 3).then_some(());
        until("every worker runs", LIMIT, three_run).await;
        let asked_at = Instant::now();
        engine.put_rule(rule("stop").pause()).await?;
        let took = asked_at.elapsed();
        // By the store's clock it is later now.
        let late = engine.enqueue(Do::SleepMs(20)).await?.id;
        let paused_at = engine.job(late).await?.spec.created_at;
        seen = quiet(&outside).await;
        let last = claims(&engine, &outside).await?.pop().unwrap();
        println!(
            "set within {took:?}, and the last claim was {:?} before that",
            paused_at.since(last)
        );
        assert!(
            last < paused_at,
            "a job was claimed at {last}, and there was a pause at {paused_at}"
        );

        let dropped_at = Instant::now();
        engine.drop_rule("stop", None).await?;
        let three_run = || (workers_since(&outside, seen).len() == 3).then_some(());
        until("every worker runs again", LIMIT, three_run).await;
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

/// The workers that began something after so many lines.
fn workers_since(outside: &Outside, seen: usize) -> BTreeSet<String> {
    begun_since(outside, seen).map(|said| said.worker).collect()
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

/// When the jobs that began were claimed, by the store's clock, in order.
async fn claims(engine: &Engine, outside: &Outside) -> HandlerResult<Vec<Timestamp>> {
    let jobs: BTreeSet<String> = outside.said().into_iter().map(|said| said.job).collect();
    let mut claims = Vec::new();
    for id in jobs {
        let events = engine.store().events(id.parse()?).await?.into_iter();
        let claimed = events.filter(|event| matches!(event.fact, Fact::Claimed { .. }));
        claims.extend(claimed.map(|event| event.at));
    }
    claims.sort();
    Ok(claims)
}

/// On PostgreSQL alone: on SQLite nodes follow each other, and a rate that outlives its process is shown elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_rate_is_kept_by_three_processes_and_a_restart_gives_no_burst() -> HandlerResult {
    let home = Home::postgres();
    let (engine, outside) = (home.open().await, home.outside());
    engine.put_rule(rule("rate").rate(20, Duration::from_secs(1))).await?;
    let requests = vec![Do::SleepMs(1); 400];
    engine.enqueue_all(requests).await.into_iter().try_for_each(|it| it.map(drop))?;
    let began = Instant::now();
    let role = Role { poll: Duration::from_secs(600), ..Role::on(&home) };
    let mut nodes: Vec<Node> = (0..3).map(|_| Node::start(&role)).collect();
    tokio::time::sleep(Duration::from_secs(5)).await;
    nodes.remove(0).kill();
    nodes.push(Node::start(&role));
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (begun, took) = (begun_since(&outside, 0).count(), began.elapsed());
    for node in nodes {
        node.stop().await;
    }
    let claims = claims(&engine, &outside).await?;
    let time = claims[claims.len() - 1].since(claims[0]);
    println!("{begun} began within {took:?}; {} were claimed within {time:?}", claims.len());
    assert!(begun as f64 <= 20.0 * took.as_secs_f64() + 10.0);
    assert!(claims.len() as f64 >= 0.9 * 20.0 * time.as_secs_f64());
    check_rate(&claims);
    engine.close().await;
    home.check().await;
    Ok(())
}

/// In any time no more are claimed than twenty a second and the ten that half a second brings.
fn check_rate(claims: &[Timestamp]) {
    for (place, from) in claims.iter().enumerate() {
        for (count, to) in claims[place..].iter().enumerate() {
            let (time, count) = (to.since(*from), count + 1);
            let allowed = 20.0 * time.as_secs_f64() + 10.0;
            assert!(count as f64 <= allowed + 0.001, "{count} within {time:?} from {from}");
        }
    }
}
