//! A process that dies after any statement of a run's whole life leaves nothing half-written behind.
//!
//! A run is asked for, fails once, is tried again and succeeds. One process is killed after its first statement, the
//! next one after its second, and so on until one lives to its end. Each time the history is checked as it was left,
//! all that was acknowledged is looked for, and the run goes on from there to its end.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    os::unix::process::ExitStatusExt as _,
    path::PathBuf,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::{task::block_in_place, time::timeout};
use windlass::{Config, Engine, HandlerResult, Worker, ids::system_random, timers};
use windlass_kernel::{
    Answer, Jitter,
    contract::{
        Told,
        runs::{CONTRACT, RunDocument, RunStatusChanged},
    },
};
use windlass_store::crash;

use crate::{
    common::for_each_store,
    handlers::{Do, act},
    home::Home,
    node::told,
    outside::{Outside, Said},
    runs::{create_for_task, history},
};

for_each_store!(a_crash_after_any_statement_leaves_state_and_events_whole);

/// How processes can leave a run when they die. Each of these has to be met.
const LEFT: [&str; 7] = [
    "not there",
    "queued 1, untold",
    "queued 1",
    "running 1",
    "retry_scheduled 1",
    "running 2",
    "succeeded 2",
];

type History = [Told<RunStatusChanged>];

/// How many stores share the work. Much of it is waiting until a process is proven dead.
const STORES: u64 = 4;

/// On a machine that is busy with other things a look more or less shifts the statements, and the one after which
/// something is left may be passed over. Then all of them are gone through again, so often at the most.
const ROUNDS_MAX: usize = 3;

async fn a_crash_after_any_statement_leaves_state_and_events_whole(home: Home) -> HandlerResult {
    let mut met = BTreeSet::new();
    for _ in 0..ROUNDS_MAX {
        let (began, mut deaths) = (Instant::now(), 0);
        let stores = (1..=STORES).map(|first| tokio::spawn(die_on(home.another(), first)));
        for store in stores.collect::<Vec<_>>() {
            let left = store.await?;
            deaths += left.len();
            met.extend(left);
        }
        told(&format!("a crash after each of {deaths} statements"), began);
        if met.len() >= LEFT.len() {
            break;
        }
    }
    assert_eq!(met, LEFT.map(str::to_owned).into());
    Ok(())
}

/// Has processes die after the first statement, and so many later, until one has no such statement. Gives back how
/// each of them left its run.
async fn die_on(home: Home, first: u64) -> Vec<String> {
    // The store is made beforehand: what is looked at is the life of a run.
    open(&home.url).await.close().await;
    let mut ways = Vec::new();
    let mut statements = first;
    loop {
        let life = Life::of(&home, statements);
        let has_died = block_in_place(|| life.live());
        home.check().await;
        let left = timeout(LIMIT, go_on(&home, &life)).await.unwrap().unwrap();
        if !has_died {
            break;
        }
        ways.push(left);
        statements += STORES;
    }
    home.check().await;
    ways
}

const LIFE: &str = "WINDLASS_TEST_LIFE";
const SIGKILL: i32 = 9;
/// How long a run may take to its end, in one process.
const LIMIT: Duration = Duration::from_secs(60);

/// What a process lives through.
#[derive(Debug, Serialize, Deserialize)]
struct Life {
    url: String,
    folder: PathBuf,
    /// The task, and the key of its run.
    name: String,
    /// After so many statements it dies.
    statements: u64,
}

impl Life {
    fn of(home: &Home, statements: u64) -> Self {
        let (url, folder) = (home.url.clone(), home.folder().to_owned());
        Self { url, folder, name: format!("dies-after-{statements}"), statements }
    }

    /// Has a process live, and says whether it died of its statements.
    fn live(&self) -> bool {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["every_statement::live_on", "--exact", "--nocapture"]);
        command.env(LIFE, serde_json::to_string(self).unwrap());
        let errors = self.folder.join("errors");
        command.stderr(File::create(&errors).unwrap()).stdout(Stdio::null());
        let status = command.status().unwrap();
        let has_died = status.signal() == Some(SIGKILL);
        let errors = fs::read_to_string(errors).unwrap();
        assert!(has_died || status.success(), "{self:?} ended with {status}:\n{errors}");
        has_died
    }

    async fn ask_for_run(&self, engine: &Engine) -> Answer {
        create_for_task(engine, &self.name, &self.name, &Do::FailFirst).await
    }

    /// The run about which its process was told this.
    fn heard(&self, outside: &Outside, what: &str) -> Option<String> {
        let begins = format!("{what} {} ", self.name);
        let of_line = |line: String| {
            let (_process, said) = line.split_once(' ')?;
            Some(said.strip_prefix(&begins)?.to_owned())
        };
        outside.lines().into_iter().find_map(of_line)
    }
}

/// In a process of its own: the whole life of a run.
#[test]
fn live_on() {
    let Ok(life) = env::var(LIFE) else { return };
    let life: Life = serde_json::from_str(&life).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { timeout(LIMIT, run(&life)).await }).unwrap().unwrap();
}

async fn run(life: &Life) -> HandlerResult {
    let (engine, outside) = (open(&life.url).await, Outside::at(&life.folder));
    crash::after_statements(life.statements);
    let run = life.ask_for_run(&engine).await.job_id;
    outside.note(&format!("acked {} {run}", life.name));
    // It hears of what there is to do. If it looked often, it would look sometimes more and sometimes less often, and
    // the same number would not mean the same statement.
    let worker = work(&engine, outside.clone(), Duration::from_secs(1)).await?;
    engine.wait(run).await?;
    outside.note(&format!("ended {} {run}", life.name));
    worker.shutdown().await?;
    engine.close().await;
    Ok(())
}

/// Looks for all that a process was told, lets its run come to its end, and gives back how it had been left.
async fn go_on(home: &Home, life: &Life) -> HandlerResult<String> {
    let (engine, outside) = (open(&home.url).await, home.outside());
    let Answer { job_id: run, recorded: was_there, .. } = life.ask_for_run(&engine).await;
    let (acked, ended) = (life.heard(&outside, "acked"), life.heard(&outside, "ended"));
    assert!(acked.iter().all(|acked| *acked == run.to_string()), "{life:?}: a run is lost");
    let left = history(&engine, run).await;
    check_steps(&left);
    assert!(ended.is_none() || count(&left, "succeeded") == 1, "{life:?}: an end is lost");
    // A handler begins when its start is durable.
    let is_begin = |said: &&Said| said.job == run.to_string() && said.what == "begun";
    let begun = outside.said().iter().filter(is_begin).count();
    assert!(begun <= count(&left, "running"), "{life:?}: a start is lost: {left:#?}");

    let worker = work(&engine, outside, SOON).await?;
    let job = engine.wait(run).await?.job;
    worker.shutdown().await?;
    check_whole(&history(&engine, run).await, &left);
    assert_eq!(RunDocument::new(&job).run_status, "succeeded");
    engine.close().await;
    let RunStatusChanged { status, attempt, .. } = left[left.len() - 1].payload;
    // Recovery may have been faster than we.
    let status = if status == "interrupted" { "running" } else { status };
    Ok(match acked {
        _ if !was_there => "not there".to_owned(),
        Some(_) => format!("{status} {attempt}"),
        None => format!("{status} {attempt}, untold"),
    })
}

/// Each step is legal, and begins where the one before it ended.
fn check_steps(steps: &History) {
    let mut previous = None;
    for Told { name, payload: step, .. } in steps {
        assert_eq!((*name, step.previous_status), ("run.status.changed", previous), "{steps:#?}");
        let is_legal = match previous {
            None => CONTRACT.begins.contains(&step.status),
            Some(previous) => CONTRACT.moves.contains(&(previous, step.status)),
        };
        assert!(is_legal, "{steps:#?}");
        assert_eq!(step.next_retry_at.is_some(), step.status == "retry_scheduled", "{steps:#?}");
        previous = Some(step.status);
    }
}

/// The run failed once, was interrupted at most once and succeeded once, and nothing of what was `left` is gone.
fn check_whole(steps: &History, left: &History) {
    check_steps(steps);
    assert_eq!(&steps[..left.len()], left);
    let interrupted = count(steps, "interrupted");
    assert!(interrupted <= 1, "{steps:#?}");
    for (status, times) in
        [("queued", 1), ("running", 2 + interrupted), ("retry_scheduled", 1), ("succeeded", 1)]
    {
        assert_eq!(count(steps, status), times, "{status}: {steps:#?}");
    }
    let last = &steps[steps.len() - 1].payload;
    assert_eq!((last.status, last.attempt), ("succeeded", 2));
}

fn count(steps: &History, status: &str) -> usize {
    steps.iter().filter(|step| step.payload.status == status).count()
}

/// An engine that notices at once that another process has died, and whose retries wait no longer than they have to.
async fn open(url: &str) -> Engine {
    let timers = timers::Config { look_every: SOON, ..timers::Config::default() };
    let (random, spread) = (system_random(), u128::from(Jitter::MAX_MS + 1));
    let config = Config {
        timers: Some(timers),
        retention: None,
        // The spread of a retry is what is left of a number when it is divided by this.
        random: Arc::new(move || random() / spread * spread),
        ..Config::default()
    };
    Engine::open_with(url, &config).await.unwrap()
}

/// A worker whose lease is so long that nothing waits for its end.
async fn work(engine: &Engine, outside: Outside, poll: Duration) -> HandlerResult<Worker> {
    let worker = engine.worker().state(Arc::new(outside)).handle(act);
    Ok(worker.lease(Duration::from_secs(600)).poll(poll).start().await?)
}

const SOON: Duration = Duration::from_millis(20);
