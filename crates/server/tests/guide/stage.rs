//! Where a page is played: a folder with a shell in it, what stays in the background, and a free port in place of the one
//! that the page names.

use std::{
    fs::{self, File},
    net::TcpListener,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        process::CommandExt as _,
    },
    path::PathBuf,
    process::{Child, Command},
    sync::atomic::{AtomicU16, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use windlass_testkit::postgres::Cluster;

use crate::{page::root, shell::Shell};

/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// The database server of whoever reads the guide.
pub(crate) const POSTGRES: &str = "postgres://me@localhost/shop";

/// What a reader types in place of `cargo` is what was built for this test.
const CARGO: &str = "#!/bin/sh
[ \"$1 $2 $3\" = 'run --release --' ] && shift 3 && exec windlass \"$@\"
echo 'only cargo run --release -- can be run here' >&2
exit 99
";

/// What comes before each command: variables are as they were left, and `cargo` is ours.
const BEFORE: &str = "set -a
PATH=\"$STAGE:$PATH\"
[ -f \"$STAGE/variables\" ] && . \"$STAGE/variables\"
";

/// What comes before a command that is waited for: it leaves its variables to the next.
const KEEPING: &str = "trap 'status=$?; export -p > \"$STAGE/variables\"; exit $status' EXIT\n";

pub(crate) struct Stage {
    shell: Shell,
    /// What the reader does not see: outputs, variables, `cargo`.
    behind: TempDir,
    background: Vec<Child>,
    /// What the page says, and what is meant here.
    meant: Vec<(String, String)>,
    runs: usize,
    status: i32,
}

/// What a command did.
pub(crate) struct Ran {
    pub(crate) printed: String,
    pub(crate) status: i32,
}

impl Stage {
    /// A stage for a page with this text. What is named in `other` means something else here.
    pub(crate) fn new(text: &str, other: &[(&str, &str)]) -> Self {
        let behind = tempfile::tempdir().expect("a folder");
        let cargo = behind.path().join("cargo");
        fs::write(&cargo, CARGO).expect("it can be written");
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let mut meant = vec![("127.0.0.1:7117".to_owned(), format!("127.0.0.1:{}", free_port()))];
        for (shown, here) in other {
            meant.push(((*shown).to_owned(), (*here).to_owned()));
        }
        if text.contains(POSTGRES) || other.iter().any(|(_, here)| *here == POSTGRES) {
            meant.push((POSTGRES.to_owned(), database()));
        }
        let shell = Shell::new();
        // A reader stands in a clone of the repository.
        for name in ["examples", "docs"] {
            let linked = symlink(root().join(name), shell.folder().join(name));
            linked.expect("the folder is empty");
        }
        Self { shell, behind, background: Vec::new(), meant, runs: 0, status: 0 }
    }

    /// What the text of the page means here.
    fn here(&self, text: &str) -> String {
        // What was started last is no child of the next shell.
        let last = self.background.last().map(|child| child.id().to_string());
        let mut text = text.replace("$!", &last.unwrap_or_default());
        for (shown, here) in &self.meant {
            text = text.replace(shown, here);
        }
        text
    }

    /// How what was printed here would look to the reader.
    fn as_shown(&self, text: &str) -> String {
        let folder = self.shell.folder().canonicalize().expect("it is there");
        let mut text = text.replace(&folder.display().to_string(), "/home/ann");
        for (shown, here) in self.meant.iter().rev() {
            text = text.replace(here, shown);
        }
        text
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.shell.folder().join(name), self.here(text)).expect("it can be written");
    }

    /// Runs a command to its end.
    pub(crate) fn run(&mut self, command: &str) -> Ran {
        let (mut child, output) =
            self.spawn(&format!("{KEEPING}(exit {})\n{command}", self.status));
        let began = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                break status;
            }
            if began.elapsed() > PATIENCE {
                end(&mut child);
                panic!("{command} takes too long; it has printed\n{}", self.read(&output));
            }
            thread::sleep(Duration::from_millis(5));
        };
        self.status = status.code().unwrap_or(-1);
        Ran { printed: self.read(&output), status: self.status }
    }

    /// Starts a command that stays, and waits until what it has printed is enough.
    pub(crate) fn start(&mut self, command: &str, is_enough: impl Fn(&str) -> bool) -> String {
        let command = command.trim_end_matches('&');
        let (child, output) = self.spawn(&format!("exec {command}"));
        self.background.push(child);
        let began = Instant::now();
        loop {
            let printed = self.read(&output);
            let child = self.background.last_mut().expect("it was put there");
            let is_over = child.try_wait().expect("it is ours").is_some();
            if is_enough(&printed) || is_over || began.elapsed() > PATIENCE {
                return printed;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a shell with this, in a process group of its own, and says where its output goes.
    fn spawn(&mut self, command: &str) -> (Child, PathBuf) {
        self.runs += 1;
        let output = self.behind.path().join(format!("output-{}", self.runs));
        let file = File::create(&output).expect("it can be written");
        let mut shell = self.shell.command(&format!("{BEFORE}{}", self.here(command)));
        shell
            .env("STAGE", self.behind.path())
            .env("WINDLASS_LISTEN", &self.meant[0].1)
            .env_remove("WINDLASS_TIME")
            .stdout(file.try_clone().expect("it is open"))
            .stderr(file)
            .process_group(0);
        (shell.spawn().expect("there is a shell"), output)
    }

    fn read(&self, output: &PathBuf) -> String {
        let bytes = fs::read(output).expect("it was made");
        self.as_shown(&String::from_utf8_lossy(&bytes))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.background.iter_mut().for_each(end);
    }
}

/// Ends a process with all that it has started.
fn end(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// A port that nobody listens on. It lies below those that the system hands out, so that nobody is given it before it is
/// used, and no two pages try the same.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 100).expect("it is small") * 100;
    let ports = (0..100).map(|_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 100);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.into_iter().find(is_free).expect("there is a free port")
}

/// A database of its own.
fn database() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (cluster, number) = (Cluster::shared(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let port = cluster.port().to_string();
    let made = Command::new(cluster.bin().join("createdb"))
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", &format!("shop{number}")])
        .status();
    assert!(made.is_ok_and(|status| status.success()), "no database could be made");
    format!("postgres://postgres@127.0.0.1:{port}/shop{number}")
}
