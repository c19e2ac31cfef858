//! `windlass worker`: the built-in executors in a process of their own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use serde_json::json;

use crate::{serving::Server, shell::Shell};

#[test]
fn a_worker_of_its_own_runs_programs_for_a_server() {
    let shell = Shell::new();
    let off = "[executors.http]\nenabled = false";
    let server = Server::start(shell.folder(), off);
    let config = "[executors.http]\nenabled = false\n\n[executors.command]\nenabled = true\n\
                  queues = [\"programs\"]\n\n[executors.command.allow.shout]\nprogram = \"/usr/bin/tr\"\n\
                  args = [\"a-z\", \"A-Z\"]\n";
    let file = shell.folder().join("worker.toml");
    fs::write(&file, config).expect("the folder can be written");
    // It finds the server by the file that it has open.
    let store = format!("sqlite:{}", shell.folder().join("windlass.db").display());
    let mut worker = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["worker", "--store", &store, "--config"])
        .arg(&file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut line = String::new();
    let stdout = worker.stdout.take().expect("it is a pipe");
    BufReader::new(stdout).read_line(&mut line).expect("it says what it listens to");
    assert!(line.starts_with("windlass works for http://127.0.0.1:"), "{line}");
    assert!(line.ends_with(": command from queue programs, 4 at once (shout)\n"), "{line}");
    let payload = json!({"command": "shout", "stdin": "ahoy"});
    let job = json!({"kind": "command", "queue": "programs", "payload": payload});
    let id = server.enqueue(&job);
    let job = server.job_in(&id, "succeeded");
    assert_eq!(job["result"]["stdout"], "AHOY", "{job}");
    // Asked to stop, it ends in good order.
    let pid = rustix::process::Pid::from_child(&worker);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(worker.wait().expect("it is ours").success());
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
