//! `windlass dev` and `windlass demo`: the first five minutes, with real processes that are really killed.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use windlass_testkit::postgres::Cluster;

use crate::shell::Shell;

/// A `windlass dev`, and what it said so far. It is killed when it is dropped.
struct Dev {
    child: Child,
    said: Arc<Mutex<String>>,
}

impl Dev {
    fn start(folder: &Path, args: &[&str]) -> Self {
        Self::start_in(folder, args, 100)
    }

    /// The same in a terminal of this width.
    fn start_in(folder: &Path, args: &[&str], columns: usize) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WINDLASS_")) {
            command.env_remove(name);
        }
        let mut child = command
            .arg("dev")
            .args(args)
            .current_dir(folder)
            .env("COLUMNS", columns.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let said = Arc::new(Mutex::new(String::new()));
        let pipes: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().expect("it is a pipe")),
            Box::new(child.stderr.take().expect("it is a pipe")),
        ];
        for pipe in pipes {
            let said = said.clone();
            thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    said.lock().expect("nobody panics with it").push_str(&format!("{line}\n"));
                }
            });
        }
        let dev = Self { child, said };
        dev.hears("Ctrl-C ends it");
        dev
    }

    fn said(&self) -> String {
        self.said.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it has said so.
    fn hears(&self, text: &str) -> String {
        let began = Instant::now();
        while !self.said().contains(text) {
            assert!(began.elapsed() < Duration::from_secs(30), "no {text:?} in\n{}", self.said());
            thread::sleep(Duration::from_millis(20));
        }
        self.said()
    }

    /// Where it answers.
    fn url(&self) -> String {
        let said = self.said();
        let words = said.split_whitespace();
        words.into_iter().find(|word| word.starts_with("http://")).expect("an address").to_owned()
    }

    /// Ends it at once, as a crash would.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it is gone");
    }

    /// Asks it to end, and waits until it has.
    fn stop(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("it is ours").success());
        thread::sleep(Duration::from_millis(50));
        self.said()
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `dev` says first and then line by line, and what the demo says, in a terminal of this width.
fn page(columns: usize) -> Shell {
    let mut shell = Shell::new();
    shell.columns(columns);
    let dev = Dev::start_in(shell.folder(), &["--listen", "127.0.0.1:0"], columns);
    let add = |line: &str, until: &str| {
        let added = shell.quiet(&format!("windlass job add {line} --queue demo"));
        assert_eq!(added.code, 0, "{}", added.stderr);
        dev.hears(until);
    };
    add("demo.report '{\"of\": \"today\"}'", "demo.report       ✓ succeeded");
    add(
        "demo.invoice '{\"customer\": \"ann\", \"amount\": \"12,50\"}'",
        "windlass dlq requeue dlq_",
    );
    shell.quiet("windlass queue pause office");
    let said = dev.hears("pause office");
    shell.wrote("windlass dev --listen 127.0.0.1:0", &said);
    shell.run("windlass demo");
    shell
}

#[test]
fn what_dev_says_in_a_narrow_terminal() {
    page(60).finish("dev_narrow");
}

#[test]
fn what_dev_says_in_a_wide_terminal() {
    page(120).finish("dev_wide");
}

/// What the crash of the demo says, in a terminal of this width.
fn crash_page(columns: usize) -> Shell {
    let mut shell = Shell::new();
    shell.columns(columns);
    // So slow that nothing but the kill can come between two steps.
    let crash = "windlass demo crash --steps 2 --step-ms 2000";
    shell.run(&format!("{crash} 2>&1 | sed -E 's/kill -9 [0-9]+/kill -9 4711/'"));
    shell
}

#[test]
fn what_the_crash_says_in_a_narrow_terminal() {
    crash_page(60).finish("crash_narrow");
}

#[test]
fn what_the_crash_says_in_a_wide_terminal() {
    crash_page(120).finish("crash_wide");
}

#[test]
fn a_port_that_is_taken_is_said_aloud_and_the_next_one_is_used() {
    // Ours, or somebody else's: it is taken.
    let _taken = TcpListener::bind("127.0.0.1:7117");
    let shell = Shell::new();
    let dev = Dev::start(shell.folder(), &[]);
    let said = dev.hears("Port 7117 is taken, so this is at port ");
    assert!(!dev.url().ends_with(":7117"), "{said}");
    assert!(said.contains("windlass.db             kept when this ends"), "{said}");
    // Commands find it by its file.
    let listed = shell.quiet("windlass job list");
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    // Who names a port gets that one or none.
    let named = shell.quiet("windlass dev --listen 127.0.0.1:7117 --store sqlite:other.db");
    assert_eq!(named.code, 4, "{}{}", named.stdout, named.stderr);
    // A file has one server.
    let second = shell.quiet("windlass dev");
    assert_eq!(second.code, 4, "{}{}", second.stdout, second.stderr);
    assert!(second.stderr.contains(&dev.url()), "{}", second.stderr);
    let elsewhere = shell.quiet("windlass dev --listen 0.0.0.0:7117");
    assert_eq!(elsewhere.code, 2, "{}", elsewhere.stderr);
}

#[test]
fn what_is_ephemeral_leaves_nothing() {
    let shell = Shell::new();
    let dev = Dev::start(shell.folder(), &["--ephemeral", "--listen", "127.0.0.1:0"]);
    let said = dev.hears("gone when this ends");
    let file = said.split_whitespace().find(|word| word.ends_with("windlass.db")).unwrap();
    assert!(Path::new(file).is_file(), "{file}");
    assert!(said.contains(&format!("export WINDLASS_SERVER={}", dev.url())), "{said}");
    dev.stop();
    assert!(!Path::new(file).parent().unwrap().exists(), "{file}");
    assert!(!shell.folder().join("windlass.db").exists());
}

#[test]
fn a_job_that_is_killed_with_its_process_goes_on_after_the_next_start() {
    let shell = Shell::new();
    let listen = ["--listen", "127.0.0.1:0"];
    let dev = Dev::start(shell.folder(), &listen);
    let job =
        shell.quiet("windlass job add demo.import '{\"steps\": 6, \"step_ms\": 300}' --queue demo");
    let job = job.stdout.trim().to_owned();
    let steps = |least: u64| {
        let began = Instant::now();
        loop {
            let shown = ask(&dev_url(&shell), &format!("/api/v1/jobs/{job}"));
            if shown["progress"]["step"].as_u64().unwrap_or(0) >= least {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(30), "{shown}");
            thread::sleep(Duration::from_millis(20));
        }
    };
    steps(2);
    dev.kill();
    let dev = Dev::start(shell.folder(), &listen);
    let said = dev.hears("↻ resumed 1 job");
    assert!(said.contains("cut off: its process died"), "{said}");
    assert!(dev.hears("under epoch 2; its handler saved step").contains(&job));
    dev.hears("✓ succeeded");
    // One that is asked to stop gives back what runs, and nothing waits for a lease.
    let slow = shell
        .quiet("windlass job add demo.import '{\"steps\": 3, \"step_ms\": 2000}' --queue demo");
    assert_eq!(slow.code, 0, "{}", slow.stderr);
    dev.hears("demo.import       ▶ running");
    let said = dev.stop();
    assert!(said.contains("cut off: its worker shut down"), "{said}");
    let began = Instant::now();
    let dev = Dev::start(shell.folder(), &listen);
    dev.hears("↻ resumed 1 job");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// The same on a database server, where others are not found by the name of the store.
#[test]
fn dev_on_postgresql_goes_on_after_it_was_killed() {
    let shell = Shell::new();
    let port = Cluster::shared().port();
    let store = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema=dev_killed");
    let args = ["--listen", "127.0.0.1:0", "--store", store.as_str()];
    let dev = Dev::start(shell.folder(), &args);
    let said = dev.said();
    assert!(!said.contains("postgres@"), "{said}");
    assert!(said.contains(&format!("export WINDLASS_SERVER={}", dev.url())), "{said}");
    let nowhere = shell.quiet(&format!("windlass demo --store '{store}'"));
    assert_eq!(nowhere.code, 2, "{}", nowhere.stderr);
    assert!(nowhere.stderr.contains("windlass demo --server http://"), "{}", nowhere.stderr);
    let import = "demo.import '{\"steps\": 5, \"step_ms\": 400}' --queue demo";
    let job = shell.quiet(&format!("windlass job add {import} --server {}", dev.url()));
    let job = job.stdout.trim().to_owned();
    let began = Instant::now();
    while ask(&dev.url(), &format!("/api/v1/jobs/{job}"))["progress"]["step"].as_u64() < Some(2) {
        assert!(began.elapsed() < Duration::from_secs(30), "{}", dev.said());
        thread::sleep(Duration::from_millis(20));
    }
    dev.kill();
    let dev = Dev::start(shell.folder(), &args);
    dev.hears("↻ resumed 1 job");
    dev.hears("under epoch 2; its handler saved step");
    dev.hears("✓ succeeded");
    let top = shell.quiet(&format!("windlass top --once --store '{store}'"));
    assert!(top.stdout.contains("demo       0        0"), "{}", top.stdout);
    let top = shell.quiet(&format!("windlass top --once --server {}", dev.url()));
    assert!(top.stdout.starts_with("enqueued "), "{}{}", top.stdout, top.stderr);
    dev.stop();
}

#[test]
fn the_demo_needs_a_server_of_its_own() {
    let mut shell = Shell::new();
    shell.run("windlass demo");
    shell.quiet("windlass token list");
    shell.run("windlass demo");
    shell.finish("demo_without_dev");
}

#[test]
fn the_four_jobs_of_the_demo_come_to_their_ends() {
    let mut shell = Shell::new();
    let dev = Dev::start(shell.folder(), &["--listen", "127.0.0.1:0"]);
    shell.run("windlass demo");
    dev.hears("demo.import       ▶ running");
    let said = dev.hears("demo.mail         ✓ succeeded");
    assert_eq!(said.matches("the mail server is busy").count(), 2, "{said}");
    assert!(said.contains("demo.report       ◷ scheduled, due in "), "{said}");
    // What was given to a job is in no line.
    assert!(!said.contains("12,50") && !said.contains("example.com"), "{said}");
    let letters = ask(&dev.url(), "/api/v1/dlq");
    let letter = letters["items"][0]["dlq_id"].as_str().expect("there is one").to_owned();
    assert!(said.contains(&format!("windlass dlq requeue {letter} --payload ")), "{said}");
    // Given what it needs, the invoice is sent.
    let body = r#"{"payload": {"customer": "ann", "amount": 12.5}}"#;
    let requeued = call(&dev.url(), "POST", &format!("/api/v1/dlq/{letter}/requeue"), body);
    assert!(requeued["job"]["job_id"].is_string(), "{requeued}");
    dev.hears("demo.invoice      ✓ succeeded");
    dev.hears("demo.report       ✓ succeeded");
    dev.hears("demo.import       ✓ succeeded");
    shell.finish("demo");
}

#[test]
fn the_crash_of_the_demo_is_real_and_counted() {
    let shell = Shell::new();
    let crash = shell.quiet("windlass demo crash --steps 4 --step-ms 200 -o json");
    assert_eq!(crash.code, 0, "{}{}", crash.stdout, crash.stderr);
    let seen = crash.json();
    assert_eq!(seen["resumed"], "resumed 1 job");
    let states = ["queued", "dispatched", "running", "interrupted", "dispatched", "running"];
    let expected: Vec<&str> = states.into_iter().chain(["succeeded"]).collect();
    assert_eq!(seen["states"], serde_json::json!(expected));
    let by_epoch = seen["steps_by_epoch"].as_array().expect("a list");
    assert_eq!(by_epoch.len(), 2, "{seen}");
    let steps = steps_of(by_epoch);
    let distinct: BTreeSet<u64> = steps.iter().copied().collect();
    assert_eq!(distinct, BTreeSet::from([1, 2, 3, 4]));
    // A process that dies between a step and its record has it done again, and then the count says so.
    assert_eq!(seen["effects_repeated"], steps.len() - distinct.len(), "{seen}");
    let told = shell.quiet("windlass demo crash --steps 2 --step-ms 200");
    assert!(told.stdout.contains("epoch 2 ran the step 2"), "{}{}", told.stdout, told.stderr);
}

/// The count of the demo can be other than 0: a handler that does not save its place does its steps again.
#[test]
fn what_runs_twice_in_the_demo_is_counted() {
    let shell = Shell::new();
    let crash = shell.quiet("windlass demo crash --steps 4 --step-ms 500 --forget -o json");
    assert_eq!(crash.code, 0, "{}{}", crash.stdout, crash.stderr);
    let seen = crash.json();
    let by_epoch = seen["steps_by_epoch"].as_array().expect("a list");
    let before = steps_of(&by_epoch[..1]);
    assert!(before.starts_with(&[1, 2]), "{seen}");
    assert_eq!(steps_of(&by_epoch[1..]), [1, 2, 3, 4], "it began anew: {seen}");
    assert_eq!(seen["effects_repeated"], before.len(), "{seen}");
    let told = shell.quiet("windlass demo crash --steps 2 --step-ms 2000 --forget");
    assert_eq!(told.code, 0, "{}{}", told.stdout, told.stderr);
    assert!(told.stdout.contains("steps that ran twice: 1\n"), "{}", told.stdout);
    assert!(told.stdout.contains("forgot its place"), "{}", told.stdout);
}

fn steps_of(by_epoch: &[serde_json::Value]) -> Vec<u64> {
    let steps = by_epoch.iter().flat_map(|epoch| epoch[1].as_array().expect("steps"));
    steps.filter_map(serde_json::Value::as_u64).collect()
}

/// Where the server of this folder answers, as its lock says.
fn dev_url(shell: &Shell) -> String {
    let lock =
        std::fs::read_to_string(shell.folder().join("windlass.db-lock")).expect("it has a lock");
    lock.lines().nth(1).expect("an address").to_owned()
}

fn ask(url: &str, path: &str) -> serde_json::Value {
    call(url, "GET", path, "")
}

fn call(url: &str, method: &str, path: &str, body: &str) -> serde_json::Value {
    use std::io::Write as _;
    let address = url.trim_start_matches("http://");
    let mut stream = std::net::TcpStream::connect(address).expect("it listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (_, document) = answer.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(document).unwrap_or_else(|why| panic!("{why}: {answer}"))
}
