//! What the tests of the store share: a store whose clock they set, short ways to say ops, and
//! processes of their own.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part of this")]
#![expect(clippy::unwrap_used, reason = "a test that fails here says enough")]

use std::{
    env, fs,
    future::Future,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use windlass_kernel::{
    Actor, Answer, By, Epoch, Failure, Jitter, Job, JobId, Kind, Op, Payload, Principal, Queue,
    Refusal, TenantId, Timestamp, WorkerId,
    ids::ClaimId,
    ops::{Enqueue, NewJob, Outcome, Settle},
};
use windlass_store::{
    ClaimMany, Error, Granted, Replies, Reply, Store as _, Write,
    sqlite::{Options, Sqlite},
};

/// Long enough for every test that does not speak of leases.
pub const LEASE: Duration = Duration::from_secs(60);

/// When the clock of a test begins.
pub const START: i64 = 1_772_000_000_000_000;

/// A store, the time that it is told, and a runtime to wait on.
pub struct TestStore {
    pub store: Arc<Sqlite>,
    pub path: PathBuf,
    pub runtime: Runtime,
    now: Arc<AtomicI64>,
    folder: Option<TempDir>,
}

impl TestStore {
    /// A new store in a folder of its own.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut test = Self::open(&folder.path().join("windlass.db")).unwrap();
        test.folder = Some(folder);
        test
    }

    /// The store of this file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let now = Arc::new(AtomicI64::new(START));
        let store = Arc::new(open(path, &now, None)?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build();
        Ok(Self { store, path: path.to_owned(), runtime: runtime.unwrap(), now, folder: None })
    }

    pub fn wait<T>(&self, future: impl Future<Output = Result<T, Error>>) -> T {
        self.runtime.block_on(future).unwrap()
    }

    pub fn pass(&self, time: Duration) {
        self.now.fetch_add(i64::try_from(time.as_micros()).unwrap(), Ordering::SeqCst);
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.now.load(Ordering::SeqCst))
    }

    pub fn commit(&self, writes: Vec<Write>) -> Replies {
        self.wait(self.store.commit(writes.into()))
    }

    /// Closes the store, and gives back its file, and its folder if it has one of its own.
    pub fn close(self) -> (PathBuf, Option<TempDir>) {
        (self.path, self.folder)
    }

    /// One write, alone.
    pub fn write(&self, write: Write) -> Result<Reply, Refusal> {
        self.commit(vec![write]).remove(0)
    }

    /// An op of the usual tenant.
    pub fn op(&self, op: impl Into<Op>) -> Result<Answer, Refusal> {
        self.write(write(op)).map(|reply| answer(&reply))
    }

    pub fn enqueue(&self, number: u128, new: NewJob) -> JobId {
        self.op(enqueue(number, new)).unwrap().job_id
    }

    /// A worker takes jobs from the default queue and starts them.
    pub fn claim(&self, worker: &str, claim: u128, max: usize) -> Vec<Granted> {
        granted(&self.write(claim_many(worker, claim, max)).unwrap())
    }

    pub fn job(&self, id: JobId) -> Job {
        self.wait(self.store.job(id)).unwrap()
    }
}

impl TestStore {
    /// The incarnation, as it is stored.
    pub fn store_incarnation(&self) -> u64 {
        let sql = "SELECT coalesce(max(value), 0) FROM meta WHERE name = 'incarnation'";
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// A connection like that of a shell.
    pub fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(&self.path).unwrap()
    }
}

/// Opens a file with this clock.
pub fn open(path: &Path, now: &Arc<AtomicI64>, address: Option<&str>) -> Result<Sqlite, Error> {
    let now = now.clone();
    Sqlite::open(Options {
        path: path.to_owned(),
        clock: Arc::new(move || Timestamp::from_micros(now.load(Ordering::SeqCst))),
        address: address.map(str::to_owned),
    })
}

/// Opens a file and expects to be refused. It gives back the error, and all it says.
pub fn refused(path: &Path) -> (Error, String) {
    let error = match TestStore::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    };
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    (error, said)
}

/// Copies a database with all that stands beside it, as a machine that dies leaves it.
pub fn copy_all(from: &Path, to: &Path) {
    for ending in ["", "-wal", "-mark"] {
        let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        if name(from).exists() {
            fs::copy(name(from), name(to)).unwrap();
        }
    }
}

pub fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

pub fn write(op: impl Into<Op>) -> Write {
    Write::Op { tenant: tenant(), op: op.into() }
}

pub fn answer(reply: &Reply) -> Answer {
    match reply {
        Reply::Answer(answer) => answer.clone(),
        other => panic!("an op was answered with {other:?}"),
    }
}

pub fn granted(reply: &Reply) -> Vec<Granted> {
    match reply {
        Reply::Granted(granted) => granted.clone(),
        other => panic!("a claim was answered with {other:?}"),
    }
}

pub fn person(name: &str) -> By {
    Actor::User(Principal::new(name).unwrap()).into()
}

pub fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub fn queue(name: &str) -> Queue {
    Queue::new(name).unwrap()
}

pub fn payload(text: &str) -> Payload {
    Payload::parse(text, Payload::MAX_BYTES_DEFAULT).unwrap()
}

/// A job with nothing special about it.
pub fn plain() -> NewJob {
    with_payload("{}")
}

pub fn with_payload(text: &str) -> NewJob {
    NewJob::new(Kind::new("mail").unwrap(), payload(text))
}

pub fn enqueue(number: u128, new: NewJob) -> Enqueue {
    Enqueue {
        job_id: JobId::from_u128(number),
        tenant: tenant(),
        new: Box::new(new),
        random: number,
        by: person("ann"),
    }
}

/// A claim on the default queue that starts what it gets.
pub fn claim_many(by: &str, claim: u128, max: usize) -> Write {
    Write::Claim(wanted(by, claim, max))
}

pub fn wanted(by: &str, claim: u128, max: usize) -> ClaimMany {
    ClaimMany {
        claim_id: ClaimId::from_u128(claim),
        worker: worker(by),
        trace_id: None,
        tenant: None,
        queues: vec![queue(NewJob::DEFAULT_NAME)],
        kinds: Vec::new(),
        max,
        lease: LEASE,
        start: true,
    }
}

pub fn settle(job_id: JobId, epoch: Epoch, outcome: Outcome) -> Settle {
    let by = By::worker(worker("w1"));
    Settle { job_id, epoch, by, outcome, stats: None, jitter: Jitter::NONE }
}

pub fn succeeded() -> Outcome {
    Outcome::Succeeded { result: None }
}

pub fn failed_for_good() -> Outcome {
    Outcome::Failed(Failure::permanent("NO_SUCH_USER", "there is no such user"))
}

pub fn failed_for_now() -> Outcome {
    Outcome::Failed(Failure::transient("BUSY", "try later"))
}

const CHILD: &str = "WINDLASS_TEST_CHILD";

/// The database that a test was started with in a process of its own; none in the usual run.
pub fn child_path() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

/// This test of the same file, in a process of its own, with this database.
pub fn child(test: &str, path: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(CHILD, path);
    command
}

/// The same, after a shell has prepared the process. It may mount: nobody else sees what it mounts, and
/// it is gone when the process is.
pub fn prepared_child(script: &str, test: &str, path: &Path) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-ec"]);
    command.arg(format!("{script}\nexec \"$0\" \"$@\"")).arg(env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(CHILD, path);
    command.env("FOLDER", path.parent().unwrap());
    command
}

/// Runs a child to its end, and fails with what it said if it failed, or if it did not run at all.
pub fn run(mut command: Command) {
    let output = command.output().expect("unshare and sh are needed to run this test");
    let said = [output.stdout, output.stderr].map(|it| String::from_utf8_lossy(&it).into_owned());
    let passed = output.status.success() && said[0].contains("1 passed");
    assert!(passed, "a process for {:?} failed:\n{}", command, said.join("\n"));
}

/// A child that has said that it is ready. It is killed, as `kill -9` does, when this is dropped.
pub struct Killed {
    child: Child,
}

impl Killed {
    pub fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().unwrap());
        let ready = out.lines().map_while(Result::ok).any(|line| line.ends_with("ready"));
        assert!(ready, "{command:?} ended before it was ready");
        Self { child }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In a child: says that it is ready and waits to be killed.
pub fn wait_to_be_killed() {
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
}
