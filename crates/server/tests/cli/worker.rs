//! `windlass worker`: the built-in executors in a process of their own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::json;
use windlass_testkit::postgres::Cluster;

use crate::{
    serving::{Server, until},
    shell::Shell,
};

/// What a worker of programs is told.
const PROGRAMS: &str = "[executors.http]\nenabled = false\n\n[executors.command]\nenabled = true\n\
    queues = [\"programs\"]\n\n[executors.command.allow.shout]\nprogram = \"/usr/bin/tr\"\n\
    args = [\"a-z\", \"A-Z\"]\n";

/// A worker of programs on a store, and what it said first. It is killed when it is dropped.
struct Worker {
    child: Child,
    said: String,
}

impl Worker {
    fn start(shell: &Shell, store: &str) -> Self {
        let file = shell.folder().join("worker.toml");
        fs::write(&file, PROGRAMS).expect("the folder can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["worker", "--store", store, "--config"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary runs");
        let mut said = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut said).expect("it says what it listens to");
        Self { child, said }
    }

    /// Asked to stop, it ends in good order.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it is ours").success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_worker_of_its_own_runs_programs_for_a_server() {
    let shell = Shell::new();
    let off = "[executors.http]\nenabled = false";
    let server = Server::start(shell.folder(), off);
    // It finds the server by the file that it has open.
    let store = format!("sqlite:{}", shell.folder().join("windlass.db").display());
    let worker = Worker::start(&shell, &store);
    let said = &worker.said;
    assert!(said.starts_with("windlass works for http://127.0.0.1:"), "{said}");
    assert!(said.ends_with(": command from queue programs, 4 at once (shout)\n"), "{said}");
    let payload = json!({"command": "shout", "stdin": "ahoy"});
    let job = json!({"kind": "command", "queue": "programs", "payload": payload});
    let id = server.enqueue(&job);
    let job = server.job_in(&id, "succeeded");
    assert_eq!(job["result"]["stdout"], "AHOY", "{job}");
    worker.stop();
    let next = server.enqueue(&json!({"kind": "command", "queue": "programs"}));
    let why = shell.quiet(&format!("windlass job why {next}")).stdout;
    assert!(why.contains("- no worker listens to queue programs"), "{why}");
}

#[test]
fn a_worker_on_postgresql_needs_no_server() {
    let shell = Shell::new();
    let port = Cluster::shared().port();
    let store = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema=worker_alone");
    let worker = Worker::start(&shell, &store);
    let said = &worker.said;
    assert!(
        said.starts_with(&format!("windlass works for postgres://127.0.0.1:{port}/")),
        "{said}"
    );
    let add = "windlass job add command '{\"command\": \"shout\", \"stdin\": \"ahoy\"}'";
    let done = shell.quiet(&format!("{add} --queue programs --wait=30s --store '{store}'"));
    assert_eq!(done.code, 0, "{}{}", done.stdout, done.stderr);
    assert!(done.stdout.contains("AHOY"), "{}", done.stdout);
    worker.stop();
    let add = format!("windlass job add command --queue programs --store '{store}'");
    let next = shell.quiet(&format!("{add} -o json")).json()["job"]["job_id"].clone();
    let why = format!("windlass job why {} --store '{store}'", next.as_str().expect("an id"));
    let why = || shell.quiet(&why).stdout;
    assert!(why().contains("- no worker listens to queue programs"), "{}", why());
    // One that is killed says nothing: its process held a lock while it lived.
    shell.quiet(&format!("windlass queue pause programs --store '{store}'"));
    let worker = Worker::start(&shell, &store);
    until("a worker", || !why().contains("no worker listens"));
    drop(worker);
    until("its end", || why().contains("- no worker listens to queue programs"));
}

#[test]
fn a_worker_says_what_is_missing() {
    let mut shell = Shell::new();
    fs::write(shell.folder().join("off.toml"), "[executors.http]\nenabled = false\n")
        .expect("the folder can be written");
    shell.run("windlass worker --config off.toml");
    shell.run("windlass worker --server http://127.0.0.1:1");
    shell.finish("worker");
}
