//! Tests in processes of their own, which can be killed.

use std::{
    env,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use super::{Backend, Home};

const CHILD: &str = "WINDLASS_TEST_CHILD";

/// The database that a test was started with in a process of its own; none in the usual run.
pub fn child_path() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

/// The home that a test was started with in a process of its own; none in the usual run.
pub fn child_home(backend: Backend) -> Option<Arc<dyn Home>> {
    env::var(CHILD).ok().map(|address| backend.home_at(&address))
}

/// This test of the same backend, in a process of its own, with this home.
pub fn child_of(backend: Backend, test: &str, home: &dyn Home) -> Command {
    child(&format!("{test}::{}", backend.name()), Path::new(&home.address()))
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
