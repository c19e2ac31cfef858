//! A node: this program in a process of its own, with an engine and workers, which can be killed and frozen.

use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use windlass::{Config, Engine, HandlerResult, JobId, Scope, State, job};
use windlass_store::read::{JobFilter, PageFrom};
use windlass_testkit::random::Chance;

use crate::{
    balancer::Balancer,
    common::until,
    handlers::{Do, act},
    home::Home,
    outside::Outside,
};

const ROLE: &str = "WINDLASS_TEST_NODE";

/// What a node is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) url: String,
    pub(crate) folder: PathBuf,
    /// How many workers it has.
    pub(crate) workers: usize,
    /// How many handlers each of them runs.
    pub(crate) concurrency: usize,
    pub(crate) lease: Duration,
    pub(crate) poll: Duration,
    /// Does it end when no job is open?
    pub(crate) until_done: bool,
    /// How many nodes of the store its calls reach, one after the other; only on PostgreSQL more than one.
    pub(crate) nodes: usize,
    /// Does it enqueue jobs, until the world is calm? From this seed.
    pub(crate) feed: Option<u64>,
}

impl Role {
    /// The usual node of this store. Its lease is so long that nothing in a test waits for it.
    pub(crate) fn on(home: &Home) -> Self {
        Self {
            url: home.url.clone(),
            folder: home.folder().to_owned(),
            workers: 1,
            concurrency: 8,
            lease: Duration::from_secs(600),
            poll: Duration::from_secs(1),
            until_done: false,
            nodes: 1,
            feed: None,
        }
    }
}

/// A process that works. It is killed when this is dropped.
pub(crate) struct Node {
    child: Child,
    /// It ends well when this is closed, also because the process of the test is gone.
    stdin: Option<ChildStdin>,
    errors: PathBuf,
}

impl Node {
    /// Starts a node, and waits until it works.
    pub(crate) fn start(role: &Role) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["node::work", "--exact", "--nocapture"]);
        command.env(ROLE, serde_json::to_string(role).unwrap());
        // Handlers panic on purpose.
        command.env("RUST_BACKTRACE", "0");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let errors = role.folder.join("errors");
        command.stderr(File::options().create(true).append(true).open(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let node = Self { child, stdin, errors };
        let ready = out.by_ref().lines().map_while(Result::ok).any(|line| line.ends_with("ready"));
        assert!(ready, "a node ended before it was ready:\n{}", node.errors());
        // What it says later is of no interest, but it must not block on it.
        thread::spawn(move || out.lines().map_while(Result::ok).for_each(drop));
        node
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal, such as STOP and CONT.
    pub(crate) fn signal(&self, name: &str) {
        let script = format!("kill -{name} {}", self.id());
        let sent = Command::new("sh").args(["-c", &script]).status().unwrap();
        assert!(sent.success(), "{script}: {sent}");
    }

    /// Has it stand still for a while, and go on as if nothing had been.
    pub(crate) fn freeze(&self, time: Duration) {
        self.signal("STOP");
        thread::sleep(time);
        self.signal("CONT");
    }

    /// Ends it as a machine that fails would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Has it come to its end in good order.
    pub(crate) async fn stop(mut self) {
        self.stdin = None;
        let status = self.ended(Duration::from_secs(60)).await;
        assert!(status.success(), "a node ended with {status}:\n{}", self.errors());
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self, limit: Duration) -> ExitStatus {
        until("the end of a node", limit, || self.exited()).await
    }

    /// How it has ended, if it has.
    pub(crate) fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// All that the nodes of this home had to complain about.
    pub(crate) fn errors(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a process of its own: works until its input is closed.
#[test]
fn work() {
    let Ok(role) = env::var(ROLE) else { return };
    let role: Role = serde_json::from_str(&role).unwrap();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(run(role)).unwrap();
}

/// How often a process tries to open its store: on a machine that is busy with other things a server may not answer in time.
const OPEN_TRIES: usize = 12;

async fn open(role: &Role) -> HandlerResult<Engine> {
    for _ in 1..OPEN_TRIES {
        match Engine::open(&role.url).await {
            Err(error) if error.is_retryable() => {}
            opened => return Ok(opened?),
        }
    }
    Ok(Engine::open(&role.url).await?)
}

async fn run(role: Role) -> HandlerResult {
    let mut engine = open(&role).await?;
    let outside = Arc::new(Outside::at(&role.folder));
    if role.nodes > 1 {
        engine.close().await;
        let nodes = Balancer::open(&role.url, role.nodes, Outside::at(&role.folder)).await?;
        engine = Engine::on(Arc::new(nodes), &Config::default());
    }
    let mut workers = Vec::new();
    for _ in 0..role.workers {
        let worker = engine.worker().state(outside.clone()).handle(act);
        let worker = worker.concurrency(role.concurrency).lease(role.lease).poll(role.poll);
        workers.push(worker.start().await?);
    }
    println!("ready");
    let feeding = async {
        match role.feed {
            Some(seed) => feed(&engine, &outside, seed).await,
            None => Ok(()),
        }
    };
    let working = async {
        feeding.await?;
        match role.until_done {
            true => all_done(&engine).await,
            false => std::future::pending().await,
        }
    };
    tokio::select! {
        () = input_closed() => {}
        done = working => done?,
    }
    for worker in workers {
        worker.shutdown().await?;
    }
    engine.close().await;
    Ok(())
}

/// Ready when the test lets this process go.
async fn input_closed() {
    let (closed, told) = tokio::sync::oneshot::channel();
    // A thread of its own: a runtime would wait for one of its threads that reads.
    thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        let _ = closed.send(());
    });
    let _ = told.await;
}

/// Jobs that are not at their ends.
pub(crate) fn open_jobs() -> JobFilter {
    let open = State::ALL.iter().copied().filter(|state| !state.is_end());
    JobFilter { states: open.collect(), ..JobFilter::of(Scope::Every) }
}

/// Ready when no job is open. It looks at each once, from the newest on: what has ended stays so, and whoever enqueues
/// later looks later. A server can be asked this, too.
async fn all_done(engine: &Engine) -> HandlerResult {
    let mut cursor = PageFrom { from: None, limit: PageFrom::LIMIT_MAX };
    loop {
        let page = engine.store().jobs(open_jobs(), cursor).await?;
        for job in page.items {
            engine.wait(job.id).await?;
        }
        cursor.from = page.next;
        if cursor.from.is_none() {
            return Ok(());
        }
    }
}

/// Enqueues jobs that do anything, and notes which were acknowledged; cancels some, and runs some again. Ready when the world is calm.
async fn feed(engine: &Engine, outside: &Outside, seed: u64) -> HandlerResult {
    let mut chance = Chance::new(seed);
    let mut made: Vec<JobId> = Vec::new();
    while !outside.is_calm() {
        let count = 1 + chance.below(8);
        let requests = (0..count).map(|_| {
            job(Do::Anything(chance.draw()))
                .timeout(Duration::from_millis(400))
                .backoff(chance.ms(1, 50), Duration::from_millis(200))
                .max_retries(u32::try_from(chance.below(5)).expect("it is small"))
        });
        let requests: Vec<_> = requests.collect();
        for enqueued in engine.enqueue_all(requests).await {
            match enqueued {
                Ok(enqueued) => {
                    outside.note(&format!("acked {}", enqueued.id));
                    made.push(enqueued.id);
                    if chance.percent(5) {
                        // It may be at its end by now.
                        let _ = engine.cancel_with(enqueued.id, chance.ms(0, 200), None).await;
                    }
                }
                // The server is away.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(id) = chance.pick(&made) {
            // It may have succeeded, or not have come to its end.
            if let Ok(again) = engine.rerun(*id).await {
                outside.note(&format!("acked {}", again.id));
            }
        }
        tokio::time::sleep(chance.ms(5, 60)).await;
    }
    Ok(())
}

/// How long something took, for those who read the output.
pub(crate) fn told(what: &str, since: Instant) -> Duration {
    let took = since.elapsed();
    println!("{what}: {took:?}");
    took
}
