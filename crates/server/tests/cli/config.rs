//! `windlass config`, and what a running server does with a config that changes.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::json;
use windlass_testkit::postgres::Cluster;

use crate::{serving::until, shell::Shell};

#[test]
fn a_config_is_made_checked_and_shown() {
    let mut shell = Shell::new();
    shell.run("windlass config check");
    shell.run("windlass config init");
    shell.run("windlass config init");
    shell.run("windlass config check");
    shell.run("head -n 14 windlass.toml");
    shell.about("What holds in the end.");
    let file = "[server]\nlisten = \"127.0.0.1:9000\"\ngrace_ms = 5000\n\n[alerts]\nlease_churn = 7\n\n\
        [[webhooks]]\nname = \"pager\"\nurl = \"https://example.com/hook\"\nsecret = \"sixteen bytes, or\"\n";
    fs::write(shell.folder().join("w.toml"), file).unwrap();
    let said =
        "WINDLASS_DEV=1 WINDLASS_EXECUTORS_HTTP_QUEUES=calls,slow WINDLASS_ALERTS_LEASE_CHURN=9";
    shell.run(&format!(
        "{said} windlass config show --config w.toml --listen 127.0.0.1:7000 --origins"
    ));
    shell.run("windlass config show | head -n 4");
    shell.about("What is wrong is said with its line.");
    fs::write(shell.folder().join("w.toml"), "[server]\n\nlisen = \"127.0.0.1:1\"\n").unwrap();
    shell.run("windlass config check w.toml");
    shell.run("windlass serve --config w.toml");
    shell.run("windlass config show --grace-ms 0");
    shell.run("WINDLASS_ALERTS_LEASE_CHURN=0 windlass config show");
    shell.about("A variable that is none of ours is told, and that is all.");
    shell.run(
        "WINDLASS_ALERT_LEASE_CHURN=7 WINDLASS_HTTP_QUEUES=a windlass config show | head -n 1",
    );
    shell.run(
        "WINDLASS_SEVER=http://127.0.0.1:1 WINDLASS_PAGER=ann windlass explain due | head -n 1",
    );
    let hook = "[[webhooks]]\nname = \"pager\"\nurl = \"https://example.com\"\nsecret_env = \"WINDLASS_PAGER\"\n";
    fs::write(shell.folder().join("w.toml"), hook).unwrap();
    shell.run("WINDLASS_PAGER='sixteen bytes, or more' windlass config check w.toml");
    shell.about("For programs.");
    shell.run("windlass config show -o jsonl | head -n 3");
    shell.finish("config");
}

/// A server of this file whose log can be read. It is killed when it is dropped.
pub(crate) struct Logged {
    child: Child,
    address: String,
}

impl Logged {
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Self {
        Self::start_under(folder, args, &[])
    }

    /// The same, below these variables.
    fn start_under(folder: &Path, args: &[&str], said: &[(&str, &str)]) -> Self {
        let log = File::create(folder.join("log")).expect("the log can be written");
        let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(args)
            .envs(said.iter().copied())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary runs");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("it prints where it is");
        let address = line.trim().rsplit(' ').next().expect("it has an address").to_owned();
        Self { child, address }
    }

    pub(crate) fn hang_up(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it runs");
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_hangup_changes_limits_without_a_restart() {
    let shell = Shell::new();
    let config = |text: &str| fs::write(shell.folder().join("w.toml"), text).unwrap();
    config("[alerts]\nlook_every_ms = 100\n");
    let server = Logged::start_under(
        shell.folder(),
        &["--dev", "--config", "w.toml", "--grace-ms", "900"],
        &[("WINDLASS_ALERTS_LEASE_CHURN", "900")],
    );
    let at = format!("--server {}", server.address);
    let log = || fs::read_to_string(shell.folder().join("log")).unwrap();
    let payload = format!("'\"{}\"'", "x".repeat(3_000));
    let add = || shell.quiet(&format!("windlass job add default {payload} {at}"));
    assert_eq!(add().code, 0);
    // A limit, a threshold, what needs a restart, and what a flag and a variable say.
    config(
        "[server]\nbody_bytes_max = 1024\nconnections_max = 5\ngrace_ms = 7\n\
         [alerts]\nlook_every_ms = 100\ninvalid_transitions = 1\nlease_churn = 8\n",
    );
    server.hang_up();
    until("the smaller bound", || add().code != 0);
    assert!(add().stderr.contains("1024"), "{}", add().stderr);
    let told = log();
    for (key, what) in [
        ("server.body_bytes_max", "the setting is changed"),
        ("alerts.invalid_transitions", "the setting is changed"),
        ("server.connections_max", "this setting needs a restart"),
    ] {
        let line = told.lines().find(|line| line.contains(key));
        assert!(line.is_some_and(|line| line.contains(what)), "{key}: {told}");
    }
    assert!(!told.contains("grace_ms"), "a flag stands above the file: {told}");
    assert!(!told.contains("lease_churn"), "a variable stands above the file: {told}");
    // The new threshold holds.
    let job = shell.quiet(&format!("windlass job add {at}")).stdout.trim().to_owned();
    until("an alert", || {
        shell.quiet(&format!("windlass job cancel {job} {at}"));
        shell.quiet(&format!("windlass doctor {at}")).stdout.contains("P1 invalid_transitions")
    });
    // A file that cannot be used changes nothing.
    config("[server]\nbody_byte_max = 1000000\n");
    server.hang_up();
    until("the error", || log().contains("all stays as it was"));
    assert!(log().contains("did you mean"), "{}", log());
    assert_ne!(add().code, 0);
    // Fewer calls a second.
    config("[server]\ncalls_per_second = 1\n");
    server.hang_up();
    until("the limit", || {
        let ran: Vec<_> =
            (0..4).map(|_| shell.quiet(&format!("windlass queue list {at}"))).collect();
        ran.iter().any(|it| it.code == 5 && it.stderr.contains("1 calls a second"))
    });
}

/// A token holds from the moment when it is issued to the moment when it is revoked, whoever does it.
#[test]
fn tokens_need_no_restart() {
    let shell = Shell::new();
    let port = Cluster::shared().port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema=tokens_live");
    let server = Logged::start(shell.folder(), &["--store", &url]);
    // Issued and revoked by another process, on the same database.
    let issue = format!("windlass token add ann --role admin --store '{url}'");
    let issued = shell.quiet(&format!("{issue} -o json")).json();
    let (id, token) = (issued["token_id"].as_str().unwrap(), issued["token"].as_str().unwrap());
    let list = |token: &str| {
        shell.quiet(&format!("windlass queue list --server {} --token {token}", server.address))
    };
    assert_eq!(list(token).code, 0, "{}", list(token).stderr);
    assert_eq!(list("nobody").code, 6);
    let revoked = shell.quiet(&format!("windlass token revoke {id} --force --yes --store '{url}'"));
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    until("the revocation", || list(token).code == 6);
    assert_eq!(json!(list(token).code), json!(6));
}
