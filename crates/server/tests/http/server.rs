//! A server of one's own: a process on a free port, and a store that nobody else uses.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use tempfile::TempDir;
use windlass_testkit::postgres::Cluster;

/// Runs a test to its end. One that hangs fails.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    const LONGEST: Duration = Duration::from_secs(300);
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
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema=http{number}");
        Self { url, _folder: None }
    }

    /// One that is there.
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), _folder: None }
    }

    /// How it is named on the command line.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Issues a token from the command line.
    pub(crate) fn token(&self, principal: &str, role: &str, tenant: &str) -> String {
        let args =
            ["token", "add", principal, "--role", role, "--tenant", tenant, "--store", self.url()];
        let Output { status, stdout, stderr } = windlass(&args).output().expect("the binary runs");
        assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).expect("a token is text").trim().to_owned()
    }

    /// Reads the whole history. A store whose rules do not all hold fails the test.
    pub(crate) fn check(&self) {
        let Output { status, stdout, stderr } =
            windlass(&["doctor", "--deep", "--store", self.url()])
                .output()
                .expect("the binary runs");
        let said = String::from_utf8_lossy(&stdout) + String::from_utf8_lossy(&stderr);
        assert!(status.success() && said.contains("Every rule holds."), "{said}");
    }
}

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    process: Child,
    /// `127.0.0.1:PORT`
    address: String,
}

impl Server {
    /// Starts one on a free port, and waits until it answers.
    pub(crate) fn start(store: &Store) -> Self {
        Self::start_at(store, "127.0.0.1:0")
    }

    /// Starts one at this address.
    pub(crate) fn start_at(store: &Store, listen: &str) -> Self {
        Self::start_with(store, listen, &["--dev"])
    }

    /// Starts one that asks for tokens.
    pub(crate) fn start_guarded(store: &Store) -> Self {
        Self::start_with(store, "127.0.0.1:0", &[])
    }

    /// Starts one with this config file.
    pub(crate) fn start_with_config(store: &Store, config: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), config).expect("it can be written");
        let path = file.path().to_str().expect("its name is text");
        Self::start_with(store, "127.0.0.1:0", &["--dev", "--config", path])
    }

    fn start_with(store: &Store, listen: &str, more: &[&str]) -> Self {
        let args = ["serve", "--listen", listen, "--store", store.url()];
        let mut process =
            windlass(&args).args(more).stdout(Stdio::piped()).spawn().expect("the binary runs");
        let stdout = process.stdout.take().expect("it was asked for");
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        read.expect("its first line can be read");
        let address = line.trim_end().rsplit_once("http://").map(|(_, address)| address.to_owned());
        let address = address.unwrap_or_else(|| panic!("it does not say where it is: {line:?}"));
        Self { process, address }
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Kills it at once: it has no time for anything.
    pub(crate) fn kill(mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> ExitStatus {
        terminate(&self.process);
        self.process.wait().expect("it ends")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks a process to end.
pub(crate) fn terminate(process: &Child) {
    let sent = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "a signal can be sent");
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
