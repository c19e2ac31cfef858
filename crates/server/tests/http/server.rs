//! A server of one's own: a process on a free port, and a store that nobody else uses.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
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

    /// Starts one that asks for tokens, with this config file.
    pub(crate) fn start_guarded_with_config(store: &Store, config: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), config).expect("it can be written");
        let path = file.path().to_str().expect("its name is text");
        Self::start_with(store, "127.0.0.1:0", &["--config", path])
    }

    /// Starts one with this config file.
    pub(crate) fn start_with_config(store: &Store, config: &str) -> Self {
        Self::start_of(store, config, &["--dev"])
    }

    /// Starts one with this config file that asks for tokens.
    pub(crate) fn start_guarded_with(store: &Store, config: &str) -> Self {
        Self::start_of(store, config, &[])
    }

    fn start_of(store: &Store, config: &str, more: &[&str]) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), config).expect("it can be written");
        let path = file.path().to_str().expect("its name is text");
        Self::start_with(store, "127.0.0.1:0", &[&["--config", path], more].concat())
    }

    /// The memory that it has in use.
    #[cfg(target_os = "linux")]
    pub(crate) fn rss_kb(&self) -> u64 {
        self.status_kb("VmRSS:")
    }

    /// What its process says of itself under this name.
    #[cfg(target_os = "linux")]
    pub(crate) fn status_kb(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.expect("it runs");
        let line = status.lines().find(|line| line.starts_with(name));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.and_then(|number| number.parse().ok()).expect("it says how much it has")
    }

    /// Starts one by this command, which is or becomes the binary, with this config file. What it says is kept.
    pub(crate) fn start_command(command: Command, store: &Store, config: &str) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), config).expect("it can be written");
        let path = file.path().to_str().expect("its name is text");
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", store.url(), "--dev"];
        let mut command = quiet(command, &args);
        command.args(["--config", path]).stderr(Stdio::piped());
        Self::started(command)
    }

    fn start_with(store: &Store, listen: &str, more: &[&str]) -> Self {
        let args = ["serve", "--listen", listen, "--store", store.url()];
        let mut command = windlass(&args);
        command.args(more);
        Self::started(command)
    }

    fn started(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("the binary runs");
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

    /// Waits until it has ended by itself, and gives back what it said.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        const LONGEST: Duration = Duration::from_secs(60);
        let began = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().expect("it is ours") {
                let mut said = String::new();
                let mut stderr = self.process.stderr.take().expect("it was asked for");
                stderr.read_to_string(&mut said).expect("it is text");
                return (status, said);
            }
            assert!(began.elapsed() < LONGEST, "the process lives on");
            std::thread::sleep(Duration::from_millis(20));
        }
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
pub(crate) fn windlass(args: &[&str]) -> Command {
    quiet(Command::new(env!("CARGO_BIN_EXE_windlass")), args)
}

fn quiet(mut command: Command, args: &[&str]) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
    }
    command.env("WINDLASS_LOG", "warn").args(args);
    command
}
