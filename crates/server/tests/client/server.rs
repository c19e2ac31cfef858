//! A server of one's own: a process on a free port, and a store that nobody else uses.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tempfile::TempDir;
use windlass::{Config, Engine};
use windlass_testkit::postgres::Cluster;

/// Runs a test to its end. One that hangs fails.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    const LONGEST: Duration = Duration::from_secs(180);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("threads can be started");
    let ended = runtime.block_on(async { tokio::time::timeout(LONGEST, test).await });
    ended.expect("the test comes to its end");
}

/// A database that nobody else uses.
pub(crate) struct Store {
    url: String,
    /// Removed when this is dropped.
    _folder: Option<TempDir>,
}

impl Store {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let url = format!("sqlite:{}", folder.path().join("windlass.db").display());
        Self { url, _folder: Some(folder) }
    }

    pub(crate) fn postgres() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let (port, number) = (Cluster::shared().port(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema=client{number}");
        Self { url, _folder: None }
    }

    /// Reads the whole history. A store whose rules do not all hold fails the test.
    pub(crate) fn check(&self) {
        let said = self.ran(&["doctor", "--deep"]);
        assert!(said.contains("Every rule holds."), "{said}");
    }

    /// What a command on it prints.
    pub(crate) fn ran(&self, args: &[&str]) -> String {
        let run = windlass(args).args(["--store", &self.url]).output();
        let Output { status, stdout, stderr } = run.expect("the binary runs");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{said}");
        said.into_owned()
    }
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    process: Child,
    /// `127.0.0.1:PORT`
    address: String,
}

impl Server {
    /// Starts one on a free port that lets everybody do everything, and waits until it answers.
    pub(crate) fn start(store: &Store) -> Self {
        Self::start_with(store, &["--dev", "--listen", "127.0.0.1:0"])
    }

    /// Starts one at the address that another one had.
    pub(crate) fn start_at(store: &Store, address: &str) -> Self {
        Self::start_with(store, &["--dev", "--listen", address])
    }

    pub(crate) fn start_with(store: &Store, args: &[&str]) -> Self {
        let mut command = windlass(&["serve", "--store", &store.url]);
        let mut process =
            command.args(args).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = process.stdout.take().expect("it was asked for");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("its first line can be read");
        let address = line.trim_end().rsplit_once("://").map(|(_, address)| address.to_owned());
        let address = address.unwrap_or_else(|| panic!("it does not say where it is: {line:?}"));
        Self { process, address }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// An engine on it.
    pub(crate) async fn engine(&self) -> Engine {
        Engine::open(&self.url()).await.expect("it answers")
    }

    /// An engine on it that is let in by this token.
    pub(crate) async fn engine_with(&self, token: &str) -> Result<Engine, windlass::Error> {
        let config = Config { token: Some(token.to_owned()), ..Config::default() };
        Engine::open_with(&self.url(), &config).await
    }

    /// Freezes it: what is sent to it arrives, and nothing is answered.
    pub(crate) fn freeze(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
    }

    /// Kills it at once: it has no time for anything.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The binary, with nothing in its environment that says what to do.
fn windlass(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
    }
    command.env("WINDLASS_LOG", "warn").args(args);
    command
}
