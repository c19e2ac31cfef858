//! A server that stands still, or a line that is cut: whoever waits is answered in bounded time.

use std::{
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use windlass_kernel::{Kind, ops::NewJob};
use windlass_store::{
    Commit as _, Error, Inspect as _, Write,
    postgres::{Options, Postgres},
};
use windlass_testkit::postgres::Cluster;

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Load, node},
    proxy::{Fault, Proxy},
};

/// How long a call waits in these tests.
const DEADLINE: Duration = Duration::from_millis(300);

/// A caller whose commit was under way may be kept this long, until it is told that nobody knows.
const ANSWER_MAX: Duration = Duration::from_secs(18);

/// A store of its own behind a proxy of its own.
struct Behind {
    store: Arc<Postgres>,
    proxy: Arc<Proxy>,
    _home: SchemaHome,
}

fn options_behind(proxy: &Proxy, schema: &str) -> Options {
    let port = proxy.port;
    let config =
        format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable");
    let mut options = Options::new(config.parse().unwrap());
    schema.clone_into(&mut options.schema);
    options
}

fn kind(name: &str) -> NewJob {
    NewJob::new(Kind::new(name).unwrap(), payload("{}"))
}

impl Behind {
    /// A store with jobs of two kinds, one connection, and all its statements prepared.
    fn new(runtime: &tokio::runtime::Runtime) -> Self {
        let home = SchemaHome::new();
        let proxy = Arc::new(Proxy::start(Cluster::shared().port()));
        let mut options = options_behind(&proxy, &home.options.schema);
        (options.connections, options.deadline) = (1, Duration::from_secs(10));
        let warm = runtime.block_on(Postgres::open(options.clone())).unwrap();
        let jobs = (1..=6).map(|it| write(enqueue(it, kind(["a", "b"][it as usize % 2]))));
        runtime.block_on(warm.commit(jobs.collect::<Vec<_>>().into())).unwrap();
        drop(warm);
        options.deadline = DEADLINE;
        let store = node(runtime, &options);
        // The deadline is short: on a busy machine it may pass before the server has answered.
        let begun = Instant::now();
        while let Err(error) = runtime.block_on(store.commit(busy(1).into())) {
            assert!(begun.elapsed() < ANSWER_MAX, "it never got ready: {error}");
        }
        Self { store, proxy, _home: home }
    }
}

/// Writes that need many trips: a new group, a new worker, jobs of several groups, a session that holds some.
fn busy(round: u128) -> Vec<Write> {
    vec![
        write(enqueue(100 + round, kind(&format!("new-{round}")))),
        claim_many(&format!("w{round}"), round, 2),
        Write::RenewSession { worker: worker("w1"), lease: LEASE },
    ]
}

/// The server is lost after each message of a commit in turn, all at the same time.
#[test]
fn wherever_a_commit_loses_its_server_the_caller_is_answered() {
    let runtime = runtime(2);
    let step = usize::try_from(count(5, 1)).unwrap();
    let mut callers = Vec::new();
    for messages in (0..=75).step_by(step) {
        let behind = Behind::new(&runtime);
        behind.proxy.freeze_after(messages);
        let (store, proxy) = (behind.store.clone(), behind.proxy.clone());
        let caller = runtime.spawn(async move {
            let begun = Instant::now();
            let told = timeout(ANSWER_MAX, store.commit(busy(2).into())).await;
            // Others may not get through any more.
            (told.map(|it| it.map(drop)), begun.elapsed(), proxy.is_frozen())
        });
        callers.push((messages, behind, caller));
    }
    let (mut unavailable, mut ambiguous, mut hanging) = (0, 0, Vec::new());
    for (messages, behind, caller) in callers {
        let (told, took, _) = runtime.block_on(caller).unwrap();
        match told {
            Ok(Err(Error::Unavailable(_))) if took < 10 * DEADLINE => unavailable += 1,
            Ok(Err(Error::Ambiguous(_))) => ambiguous += 1,
            Ok(Ok(())) => {}
            other => hanging.push((messages, took, format!("{other:?}"))),
        }
        // It goes on, and the same again is answered as if it were the first time.
        behind.proxy.thaw();
        let again = async {
            while behind.store.commit(busy(2).into()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            behind.store.open_jobs().await.unwrap().len()
        };
        let jobs = runtime.block_on(async { timeout(ANSWER_MAX, again).await });
        assert_eq!(jobs.ok(), Some(8), "after {messages} messages");
    }
    println!("{unavailable} unavailable, {ambiguous} ambiguous");
    assert!(hanging.is_empty(), "no answer, or not in time: {hanging:?}");
    assert!(unavailable > 5 && ambiguous > 0, "too few places were reached");
}

/// A node is cut off when it has the lock of the feed and has not sent its commit yet. Until its server
/// notices, nobody else can commit.
#[test]
fn a_node_that_is_cut_off_with_a_lock_does_not_stop_others_for_long() {
    let runtime = runtime(2);
    let home = SchemaHome::new();
    let proxy = Proxy::start(Cluster::shared().port());
    let mut options = options_behind(&proxy, &home.options.schema);
    options.connections = 1;
    let lost = node(&runtime, &options);
    let others = node(&runtime, &home.options);
    runtime.block_on(lost.commit(vec![write(enqueue(1, plain()))].into())).unwrap();
    let locked = "
        SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE locktype = 'advisory' AND granted AND state = 'idle in transaction'
            AND classid = 1464615251 AND objid = 'meta'::regclass::oid";
    let shell = home.sql();
    proxy.arm(Fault::Freeze);
    let store = lost.clone();
    let commit =
        runtime.spawn(async move { store.commit(vec![claim_many("w1", 1, 1)].into()).await });
    let waits = Instant::now();
    while shell.query(locked, &[]).is_empty() {
        assert!(waits.elapsed() < Duration::from_secs(5), "it never had the lock");
        std::thread::sleep(Duration::from_millis(5));
    }
    let begun = Instant::now();
    let mut refused = 0;
    while let Err(error) = runtime.block_on(others.commit(vec![write(enqueue(2, plain()))].into()))
    {
        assert_eq!(error.code(), "UNAVAILABLE");
        refused += 1;
    }
    let waited = begun.elapsed();
    println!("others went on after {waited:?}, {refused} refused");
    assert!(waited < Duration::from_secs(12), "one node stopped all others for {waited:?}");
    proxy.thaw();
    // Its connection is gone, and with it what it had not committed: it does all of it again.
    let got = runtime.block_on(commit).unwrap().unwrap().remove(0).unwrap();
    assert_eq!(granted(&got).len(), 1);
    assert_eq!(runtime.block_on(others.open_jobs()).unwrap().len(), 2);
}

/// The server takes the connection and falls silent, after each message of opening in turn, all at the same time.
#[test]
fn wherever_opening_loses_its_server_the_caller_is_told_in_time() {
    let runtime = runtime(2);
    let mut callers = Vec::new();
    for messages in (0..200).step_by(usize::try_from(count(8, 2)).unwrap()) {
        let home = SchemaHome::new();
        let proxy = Proxy::start(Cluster::shared().port());
        let mut options = options_behind(&proxy, &home.options.schema);
        options.deadline = DEADLINE * 3;
        options.config.connect_timeout(DEADLINE * 3);
        proxy.freeze_after(messages);
        let open = async move {
            let begun = Instant::now();
            let told = timeout(ANSWER_MAX, Postgres::open(options)).await;
            (told.map(|it| it.map(drop)), begun.elapsed())
        };
        callers.push((messages, runtime.spawn(open), proxy, home));
    }
    let (mut in_time, mut opened, mut hanging) = (0, 0, Vec::new());
    for (messages, caller, proxy, _) in &mut callers {
        let (told, took) = runtime.block_on(caller).unwrap();
        // The server would keep the locks of a statement whose end never comes.
        proxy.thaw();
        match told {
            Ok(Err(Error::Open { .. } | Error::Unavailable(_))) if took < 20 * DEADLINE => {
                in_time += 1;
            }
            Ok(Ok(())) => opened += 1,
            other => hanging.push((*messages, took, format!("{other:?}"))),
        }
    }
    println!("{in_time} were told, {opened} were open by then");
    assert!(hanging.is_empty(), "no answer, or not in time: {hanging:?}");
    assert!(in_time > 5 && opened > 0, "not every place was reached");
}

/// All processes of the server stand still for a while.
#[test]
fn a_server_that_stands_still_is_waited_for_in_bounded_time() {
    let cluster = Cluster::start(&windlass_testkit::postgres::Options::default());
    let mut home = SchemaHome::new_in(&cluster);
    home.options.deadline = DEADLINE;
    let runtime = runtime(2);
    let load = Load::start(&runtime, &[node(&runtime, &home.options)], 8);
    for _ in 0..count(2, 20) {
        load.wait_for(30);
        let still = Still::make(cluster.socket_dir());
        std::thread::sleep(Duration::from_millis(1_500));
        drop(still);
        println!("work went on {:?} after the server did", load.wait_for(1));
    }
    load.wait_for(50);
    let ledger = load.stop(&runtime);
    judge(&home, &ledger);
    println!("errors {:?}, the longest answer {:?}", ledger.errors, ledger.longest_answer);
    assert!(ledger.errors.contains_key("UNAVAILABLE"), "nobody noticed");
    assert!(ledger.longest_answer < Duration::from_secs(10));
}

/// A server whose processes do not run until this is dropped.
struct Still {
    processes: Vec<String>,
}

impl Still {
    fn make(folder: &Path) -> Self {
        let file = std::fs::read_to_string(folder.join("data/postmaster.pid")).unwrap();
        let server = file.lines().next().unwrap().to_owned();
        let children =
            std::fs::read_to_string(format!("/proc/{server}/task/{server}/children")).unwrap();
        // First the one that would start others.
        let mut processes = vec![server];
        processes.extend(children.split_whitespace().map(str::to_owned));
        let still = Self { processes };
        still.signal("-STOP");
        still
    }

    fn signal(&self, name: &str) {
        let _ = Command::new("kill").arg(name).args(&self.processes).status();
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}
