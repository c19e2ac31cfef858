//! A node in a process of its own, at the end of a way that can be cut.

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::time::sleep;
use windlass_kernel::{
    By, Epoch, Jitter, JobId, State,
    ops::{Settle, Start},
};
use windlass_store::{ClaimMany, Commit as _, Error, Replies, Write, postgres::Postgres};
use windlass_testkit::{
    network::{Cut, Line},
    postgres::Cluster,
};

use crate::{
    common::{postgres::SchemaHome, *},
    load::{Ledger, PATIENCE, node},
    proxy::Proxy,
};

/// How long a call of a node waits, and how long it may take to connect.
const DEADLINE: Duration = Duration::from_secs(1);

/// Shorter than most cuts, so that others take over.
const LEASE: Duration = Duration::from_millis(1_200);

/// How a node reaches the server.
pub(super) enum Way {
    Line(Line),
    Proxy(Proxy),
}

impl Way {
    pub(super) fn cut(&self, cut: Cut) {
        match self {
            Way::Line(line) => line.cut(cut),
            Way::Proxy(proxy) => proxy.hold(cut),
        }
    }

    pub(super) fn heal(&self) {
        match self {
            Way::Line(line) => line.heal(),
            Way::Proxy(proxy) => proxy.let_go(),
        }
    }

    /// A test of this file in a process at the end of this way, with a schema of this cluster.
    fn command(&self, test: &str, cluster: &Cluster, schema: &str) -> Command {
        let (server, outer) = match self {
            Way::Line(line) => {
                let program = env::current_exe().unwrap();
                let server = cluster.connection_string_at(line.here(), "postgres");
                (server, Some(line.command(program)))
            }
            Way::Proxy(proxy) => {
                let at = format!("host=127.0.0.1 port={}", proxy.port);
                (format!("{at} user=postgres dbname=postgres sslmode=disable"), None)
            }
        };
        let inner = child(test, format!("{server}|{schema}").as_ref());
        let Some(mut outer) = outer else { return inner };
        outer.args(inner.get_args());
        outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer
    }
}

/// The process, and what it has said. It is killed when this is dropped, and its way goes after it.
pub(super) struct NodeProcess {
    child: Child,
    reader: Option<JoinHandle<()>>,
    said: Arc<Mutex<Vec<Said>>>,
    pub(super) way: Way,
}

/// A line that a node wrote, and when it came.
struct Said {
    what: Vec<String>,
    at: Instant,
}

impl NodeProcess {
    pub(super) fn start(number: u32, way: Way, cluster: &Cluster, schema: &str) -> Self {
        let mut command = way.command("partitions::process::child_is_a_node", cluster, schema);
        command.env("WINDLASS_TEST_NUMBER", number.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said: Arc<Mutex<Vec<Said>>> = Arc::default();
        let (out, heard) = (child.stdout.take().unwrap(), said.clone());
        let reader = Some(thread::spawn(move || listen(out, &heard)));
        Self { child, reader, said, way }
    }

    /// How many commits it was told of.
    pub(super) fn told(&self) -> u64 {
        let said = self.said.lock().unwrap();
        said.iter().filter(|it| it.what[0] != "error").count() as u64
    }

    /// When it was first told of a commit after this.
    pub(super) fn first_told_after(&self, since: Instant) -> Option<Instant> {
        let said = self.said.lock().unwrap();
        said.iter().find(|it| it.at > since && it.what[0] != "error").map(|it| it.at)
    }

    /// Ends it, and notes all that it was told.
    pub(super) fn end(mut self, ledger: &mut Ledger) {
        assert!(self.child.try_wait().unwrap().is_none(), "a node has ended by itself");
        self.kill();
        for Said { what, .. } in self.said.lock().unwrap().iter() {
            let number = |place: usize| what[place].parse::<u128>().unwrap();
            match &*what[0] {
                "idle" => {}
                "error" => {
                    let code = [UNAVAILABLE, AMBIGUOUS].into_iter().find(|it| *it == what[1]);
                    let code = code.unwrap_or_else(|| panic!("a node was told {what:?}"));
                    *ledger.errors.entry(code).or_default() += 1;
                }
                "held" => {
                    let grant = (number(1), u64::try_from(number(2)).unwrap());
                    let other = ledger.granted.insert(grant, number(3));
                    assert_eq!(other, None, "{grant:?} was granted twice");
                }
                state => {
                    let settle = (number(1), u64::try_from(number(2)).unwrap());
                    let state = State::parse(state).expect("a state");
                    let other = ledger.settled.insert(settle, state);
                    assert_eq!(other, None, "{settle:?} was settled twice");
                }
            }
        }
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

const UNAVAILABLE: &str = "UNAVAILABLE";
const AMBIGUOUS: &str = "AMBIGUOUS";

fn listen(out: ChildStdout, said: &Mutex<Vec<Said>>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        // The last one may be cut off.
        let Some(line) = line.strip_prefix("node: ").and_then(|it| it.strip_suffix('.')) else {
            continue;
        };
        let what = line.split(' ').map(str::to_owned).collect();
        said.lock().unwrap().push(Said { what, at: Instant::now() });
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("node: {line}.\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// In a process of its own: three workers claim, start and settle without end, and say what they were told.
#[test]
fn child_is_a_node() {
    let Some(address) = child_path() else { return };
    let number: u128 = env::var("WINDLASS_TEST_NUMBER").unwrap().parse().unwrap();
    // It ends with whoever started it.
    thread::spawn(|| {
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::exit(1);
    });
    let mut home = SchemaHome::at(address.to_str().unwrap());
    home.options.deadline = DEADLINE;
    home.options.config.connect_timeout(DEADLINE).tcp_user_timeout(DEADLINE);
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    let work = |task: u128| {
        let name = format!("node-{number}-{task}");
        let worker = Worker { store: store.clone(), name, first: (number << 64) + (task << 32) };
        runtime.spawn(worker.run())
    };
    let workers: Vec<_> = (1..=3).map(work).collect();
    workers.into_iter().for_each(|worker| runtime.block_on(worker).unwrap());
}

/// Now and then somebody takes longer than the lease, and settles what another has by then: the node still
/// remembers it as its own.
fn handling(claim: u128) -> Duration {
    if claim % 16 == 15 { LEASE + Duration::from_millis(300) } else { Duration::from_millis(10) }
}

struct Worker {
    store: Arc<Postgres>,
    name: String,
    /// Its claims have the numbers after this one.
    first: u128,
}

impl Worker {
    async fn run(self) {
        for claim in self.first.. {
            let held = self.claim(claim).await;
            let by = || By::worker(worker(&self.name));
            let starts = held
                .iter()
                .map(|(job_id, epoch)| write(Start { job_id: *job_id, epoch: *epoch, by: by() }));
            // Whoever has lost the lease is told again when it settles.
            self.until_told(starts.collect()).await;
            sleep(handling(claim)).await;
            let settles = held.iter().map(|(job_id, epoch)| {
                let (job_id, epoch, outcome) = (*job_id, *epoch, succeeded());
                write(Settle {
                    job_id,
                    epoch,
                    by: by(),
                    outcome,
                    stats: None,
                    jitter: Jitter::NONE,
                })
            });
            let told = self.until_told(settles.collect()).await;
            for ((id, epoch), reply) in held.iter().zip(&told) {
                if let Ok(reply) = reply {
                    say(&format!("{} {} {epoch}", answer(reply).state, id.as_u128()));
                }
            }
        }
    }

    async fn claim(&self, claim: u128) -> Vec<(JobId, Epoch)> {
        let wanted = ClaimMany { lease: LEASE, start: false, ..wanted(&self.name, claim, 2) };
        let told = self.until_told(vec![Write::Claim(wanted)]).await.remove(0);
        let held = granted(&told.unwrap());
        let held: Vec<_> = held.iter().map(|it| (it.job.id, it.job.epoch)).collect();
        for (id, epoch) in &held {
            say(&format!("held {} {epoch} {claim}", id.as_u128()));
        }
        if held.is_empty() {
            say("idle");
            sleep(Duration::from_millis(20)).await;
        }
        held
    }

    /// Asks for the same until there is an answer.
    async fn until_told(&self, writes: Vec<Write>) -> Replies {
        let (writes, begun) = (Arc::new(writes), Instant::now());
        loop {
            let told: Result<Replies, Error> = self.store.commit(writes.clone()).await;
            match told {
                Ok(replies) => return replies,
                Err(error) => {
                    say(&format!("error {}", error.code()));
                    assert!(begun.elapsed() < PATIENCE, "still {error:?}");
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}
