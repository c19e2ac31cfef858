//! The built-in executors, in a server: jobs that call and run something without a line of code.
#![cfg(unix)]

#[path = "serving/mod.rs"]
#[allow(dead_code, reason = "each test uses some of it")]
mod serving;

use std::{fs, net::TcpListener, process::Command};

use rustix::process::{Pid, test_kill_process};
use serde_json::json;
use serving::{Receiver, Server, until};

#[test]
fn a_job_calls_a_server_that_the_config_allows_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(|_| 200);
    let server = Server::start(folder.path(), "[executors.http]\nallow = [\"127.0.0.1\"]\n");
    let call = |url: String| json!({ "kind": "http", "payload": {"url": url, "body": {"n": 1}} });
    let id = server.enqueue(&call(format!("http://{}/a", receiver.address)));
    let job = server.job_in(&id, "succeeded");
    assert_eq!(job["result"]["status"], 200);
    assert_eq!(receiver.received()[0].headers["idempotency-key"], format!("{id}+0"));
    let id = server.enqueue(&call(format!("http://[::1]:{}/", receiver.address.port())));
    let job = server.job_in(&id, "failed");
    assert_eq!(job["error"]["code"], "ADDRESS_NOT_ALLOWED");
}

#[test]
fn a_program_runs_if_the_config_allows_it_and_is_gone_with_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let script = r#"[ "$1" = wait ] || exec echo "$1"; trap "" TERM; sleep 60 & echo $! $$ > "$2.new"; mv "$2.new" "$2"; wait; sleep 60"#;
    let config = format!(
        "[server]\ngrace_ms = 300\n[executors.command]\nenabled = true\n\
         [executors.command.allow.say]\nprogram = \"/bin/sh\"\n\
         args = ['-c', '{script}', 'sh', '{{text}}', '{}']\n",
        pids.display()
    );
    let server = Server::start(folder.path(), &config);
    let run = |text: &str| {
        server.enqueue(&json!({
            "kind": "command", "payload": {"command": "say", "args": {"text": text}}
        }))
    };
    let job = server.job_in(&run("$(id)"), "succeeded");
    assert_eq!(job["result"]["stdout"], "$(id)\n");
    let job = server.job_in(&run("-n"), "failed");
    assert_eq!(job["error"]["code"], "COMMAND_NOT_ALLOWED");
    run("wait");
    until("the program", || pids.exists());
    let text = fs::read_to_string(&pids).unwrap();
    let family: Vec<_> =
        text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect();
    assert!(family.iter().all(|pid| test_kill_process(*pid).is_ok()));
    server.stop();
    // What nobody waits for any more is reaped in a moment.
    until("the end of the programs", || family.iter().all(|pid| test_kill_process(*pid).is_err()));
}

/// All slots could be taken by jobs of one tenant that do not end. Some are left, so that another's job is done beside them.
#[test]
fn slow_jobs_of_one_tenant_leave_slots_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("windlass.db").display());
    let [greedy, modest] = ["greedy", "modest"].map(|tenant| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["token", "add", "w", "--role", "worker", "--tenant", tenant]);
        let issued = command.args(["--store", &store]).output().unwrap();
        assert!(issued.status.success(), "{}", String::from_utf8_lossy(&issued.stderr));
        let token = String::from_utf8(issued.stdout).unwrap();
        format!("authorization: Bearer {}\r\n", token.trim())
    });
    // One that takes calls and never answers, and one that answers at once.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let receiver = Receiver::start(|_| 200);
    let config = "[server]\ngrace_ms = 100\n\
        [executors.http]\nallow = [\"127.0.0.1\"]\nconcurrency = 4\n\
        [executors.command]\nenabled = true\nconcurrency = 4\n\
        [executors.command.allow.nap]\nprogram = \"/bin/sleep\"\nargs = ['{seconds}']\n";
    let server = Server::start(folder.path(), config);
    let enqueue = |who: &str, job: serde_json::Value| -> String {
        let (status, told) = server.call_with("POST", "/api/v1/jobs", who, Some(&job));
        assert_eq!(status, 201, "{told}");
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["job"]["job_id"].as_str().unwrap().to_owned()
    };
    let call = |address: std::net::SocketAddr| {
        let payload = json!({ "url": format!("http://{address}/"), "body": 1 });
        json!({ "kind": "http", "payload": payload, "timeout_ms": 600_000 })
    };
    let nap = |seconds: &str| {
        let payload = json!({ "command": "nap", "args": { "seconds": seconds } });
        json!({ "kind": "command", "payload": payload, "timeout_ms": 600_000 })
    };
    for _ in 0..12 {
        enqueue(&greedy, call(silent.local_addr().unwrap()));
        enqueue(&greedy, nap("300"));
    }
    let running = |who: &str, kind: &str| {
        let path = format!("/api/v1/jobs?state=running&kind={kind}");
        let (_, told) = server.call_with("GET", &path, who, None);
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        told["items"].as_array().unwrap().len()
    };
    for kind in ["http", "command"] {
        until("the greedy tenant", || running(&greedy, kind) >= 3);
    }
    for job in [call(receiver.address), nap("0")] {
        let id = enqueue(&modest, job);
        until("the job of the modest tenant", || {
            let (_, told) = server.call_with("GET", &format!("/api/v1/jobs/{id}"), &modest, None);
            told.contains("\"state\":\"succeeded\"")
        });
    }
    assert_eq!((running(&greedy, "http"), running(&greedy, "command")), (3, 3), "they go on");
}

#[test]
fn a_config_that_cannot_be_used_is_a_usage_error_that_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("windlass.toml");
    fs::write(&file, "[server]\nlisen = \"127.0.0.1:0\"\n").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let run = command.args(["serve", "--config"]).arg(&file).output().unwrap();
    assert_eq!(run.status.code(), Some(2));
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(
        told.contains("line 2: there is no key \"lisen\" here; did you mean \"listen\"?"),
        "{told}"
    );
}

#[test]
fn a_flag_stands_above_a_variable_and_that_above_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("windlass.toml");
    // Addresses that hardly a machine has, and if so, there is no token: each try ends with the one that it took.
    fs::write(&file, "[server]\nlisten = \"203.0.113.1:1\"\n").unwrap();
    let listen = |variable: Option<&str>, flag: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.arg("serve").args(flag).env("WINDLASS_CONFIG", &file).env_remove("WINDLASS_LISTEN");
        if let Some(variable) = variable {
            command.env("WINDLASS_LISTEN", variable);
        }
        let run = command.current_dir(folder.path()).output().unwrap();
        assert!(!run.status.success());
        String::from_utf8(run.stderr).unwrap()
    };
    assert!(listen(None, &[]).contains("203.0.113.1:1"));
    assert!(listen(Some("203.0.113.2:2"), &[]).contains("203.0.113.2:2"));
    let flag = ["--listen", "203.0.113.3:3"];
    assert!(listen(Some("203.0.113.2:2"), &flag).contains("203.0.113.3:3"));
}
