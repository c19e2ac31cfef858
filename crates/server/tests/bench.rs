//! `windlass bench`: each workload through the real binary. What is checked is what the figures mean, and
//! never how fast anything was.
#![cfg(unix)]

use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

const FIELDS: [&str; 12] = [
    "workload",
    "store",
    "jobs",
    "seconds",
    "jobs_per_s",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "commits",
    "bytes_per_job",
    "cpu_s_per_million",
    "peak_rss_mb",
];

/// The binary in an empty folder, which is where it has its temporary files.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.current_dir(self.folder.path()).args(args.split(' '));
        command.env_remove("WINDLASS_STORE").env_remove("WINDLASS_OUTPUT");
        command
    }

    fn run(&self, args: &str) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// The documents that a benchmark printed.
    fn measure(&self, args: &str) -> Value {
        let run = self.run(&format!("bench {args} -o json"));
        assert_eq!(run.status.code(), Some(0), "{args}: {}", text(&run.stderr));
        serde_json::from_slice(&run.stdout).expect("it prints JSON")
    }

    fn is_refused(&self, args: &str, code: i32, because: &str) {
        let run = self.run(args);
        assert_eq!(run.status.code(), Some(code), "{args}: {}", text(&run.stderr));
        assert!(text(&run.stderr).contains(because), "{args}: {}", text(&run.stderr));
        assert_eq!(text(&run.stdout), "", "{args}");
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).expect("the folder is there");
        let mut names: Vec<String> = entries
            .map(|it| it.expect("it can be read").file_name().display().to_string())
            .collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints text")
}

fn number(document: &Value, field: &str) -> f64 {
    document[field].as_f64().unwrap_or_else(|| panic!("{field} is no number: {document}"))
}

fn fields(document: &Value) -> Vec<&str> {
    document.as_object().expect("it is an object").keys().map(String::as_str).collect()
}

fn has_fields(document: &Value, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let mut found = fields(document);
    found.sort_unstable();
    assert_eq!(found, expected);
}

/// What is true of every run.
fn is_sane(document: &Value, workload: &str, jobs: u64) {
    assert_eq!(document["workload"], workload);
    assert_eq!(document["store"], "sqlite");
    assert_eq!(document["jobs"], jobs);
    for field in ["seconds", "jobs_per_s", "commits", "bytes_per_job", "cpu_s_per_million"] {
        assert!(number(document, field) > 0.0, "{field}: {document}");
    }
    if cfg!(target_os = "linux") {
        assert!(number(document, "peak_rss_mb") > 1.0, "{document}");
    }
    let [p50, p95, p99] = ["p50_ms", "p95_ms", "p99_ms"].map(|it| number(document, it));
    assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{document}");
}

/// Measures into a file, and has the doctor read it.
fn check(args: &str, workload: &str, jobs: u64, jobs_in_store: u64) -> Value {
    let bench = Bench::new();
    let document = bench.measure(&format!("{workload} --store sqlite:kept.db {args}"));
    has_fields(&document, &FIELDS);
    is_sane(&document, workload, jobs);
    let run = bench.run("doctor --deep --store sqlite:kept.db -o json");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stdout));
    let found: Value = serde_json::from_slice(&run.stdout).expect("it prints JSON");
    assert_eq!(found["jobs"], jobs_in_store);
    document
}

#[test]
fn callers_of_enqueue_share_commits() {
    let document = check("--jobs 320 --concurrency 32", "enqueue", 320, 320);
    assert!(number(&document, "commits") < 320.0, "{document}");
}

#[test]
fn batches_are_enqueued_whole() {
    let document = check("--jobs 2_500", "enqueue-bulk", 2500, 2500);
    assert!(number(&document, "commits") < 25.0, "{document}");
}

#[test]
fn a_drain_finishes_its_jobs_and_leaves_the_backlog() {
    let args = "--jobs 701 --history 300 --backlog 200";
    let document = check(args, "drain", 701, 1201);
    // A job is claimed in one commit and settled in another.
    assert!((2.0..70.0).contains(&number(&document, "commits")), "{document}");
}

#[test]
fn what_comes_at_a_pace_is_started_one_by_one() {
    let document = check("--jobs 20 --concurrency 2", "latency", 20, 20);
    assert!(number(&document, "seconds") >= 0.19, "{document}");
}

#[test]
fn a_yardstick_adds_two_fields_to_each_run() {
    let bench = Bench::new();
    let expected = [&FIELDS[..], &["yardstick_jobs_per_s", "ratio"]].concat();
    for workload in ["enqueue", "enqueue-bulk", "drain"] {
        let args = format!("{workload} --jobs 200 --history 10 --yardstick --runs 2");
        let documents = bench.measure(&args);
        let runs = documents.as_array().expect("several runs are a list");
        assert_eq!(runs.len(), 2);
        for document in runs {
            has_fields(document, &expected);
            is_sane(document, workload, 200);
            assert!(number(document, "ratio") > 0.0, "{document}");
        }
    }
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn people_get_a_table_with_a_row_for_each_run() {
    let bench = Bench::new();
    let run = bench.run("bench drain --jobs 50 --runs 3 --yardstick");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let lines: Vec<&str> = text(&run.stdout).lines().collect();
    assert_eq!(lines[0], "drain on sqlite, 2 at a time");
    assert!(lines[1].starts_with("run  jobs  seconds"), "{}", lines[1]);
    assert!(lines[4].starts_with("  3    50 "), "{}", lines[4]);
    assert!(lines[5].starts_with("median ratio "), "{}", lines[5]);
    assert_eq!(lines.len(), 6);
    // No bar where there is no terminal. A debug build says that it is one.
    assert!(text(&run.stderr).lines().all(|line| line.contains("debug build")));
}

#[test]
fn one_line_a_run_for_programs_that_read_lines() {
    let bench = Bench::new();
    let run = bench.run("bench enqueue-bulk --jobs 50 --runs 2 --store sqlite:kept.db -o jsonl");
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let lines: Vec<Value> =
        text(&run.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    lines.iter().for_each(|document| is_sane(document, "enqueue-bulk", 50));
    // The file is that of the last run.
    let run = bench.run("doctor --deep --store sqlite:kept.db -o json");
    let found: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!((&found["healthy"], &found["jobs"]), (&true.into(), &50.into()));
}

#[test]
fn a_database_that_was_there_is_refused_and_not_touched() {
    let bench = Bench::new();
    bench.measure("enqueue-bulk --jobs 20 --store sqlite:mine.db");
    let path = bench.folder.path().join("mine.db");
    let (before, files) = (fs::read(&path).unwrap(), bench.files());
    for workload in ["enqueue", "drain", "latency"] {
        let args = format!("bench {workload} --jobs 5 --store sqlite:mine.db");
        bench.is_refused(&args, 4, "mine.db is already there");
        bench.is_refused(&args, 4, "Name a file that is not there yet");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(bench.files(), files);
    // Neither is a file that is no database.
    fs::write(bench.folder.path().join("notes.txt"), "mine").unwrap();
    bench.is_refused("bench enqueue --store sqlite:notes.txt", 4, "already there");
    assert_eq!(fs::read(bench.folder.path().join("notes.txt")).unwrap(), b"mine");
}

#[test]
fn the_store_of_the_environment_is_left_alone() {
    let bench = Bench::new();
    let mut command = bench.command("bench enqueue-bulk --jobs 20 -o json");
    let run = command.env("WINDLASS_STORE", "sqlite:served.db").output().unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn what_makes_no_sense_is_refused_with_a_way_on() {
    let bench = Bench::new();
    for (args, because) in [
        ("drain --jobs many", "a whole number is wanted, such as 5000 or 1_000_000"),
        ("drain --jobs 1.5", "a whole number is wanted"),
        ("drain --jobs 0", "it must lie between 1 and"),
        ("drain --jobs=-5", "a whole number is wanted"),
        ("enqueue --concurrency 0", "it must lie between 1 and 1024"),
        ("enqueue --runs 0", "it must lie between 1 and 1000"),
        ("enqueue --backlog 10", "--backlog is for drain"),
        ("latency --yardstick", "latency has no yardstick"),
        ("enqueue --yardstick --store postgres://localhost/windlass", "Leave out --yardstick"),
        ("enqueue --store mysql://localhost", "Try --store sqlite:FILE"),
        ("enqueue --store sqlite:", "Try --store sqlite:FILE"),
        ("upload", "possible values: enqueue, enqueue-bulk, drain, latency"),
    ] {
        bench.is_refused(&format!("bench {args}"), 2, because);
    }
    bench.is_refused("bench enqueue --store sqlite:none/here.db", 1, "cannot use none");
    let nobody = "bench enqueue --store postgres://nobody@127.0.0.1:1/none";
    bench.is_refused(nobody, 5, "postgres://127.0.0.1:1/none");
    assert_eq!(bench.files(), [""; 0]);
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    for signal in ["INT", "TERM"] {
        let bench = Bench::new();
        let mut command = bench.command("bench drain --jobs 1_000_000_000");
        let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_for_database(bench.folder.path());
        send(signal, &running);
        let run = running.wait_with_output().unwrap();
        assert_eq!(run.status.code(), Some(130), "{}", text(&run.stderr));
        assert!(text(&run.stderr).contains("stopped before the end"), "{}", text(&run.stderr));
        assert_eq!(text(&run.stdout), "");
        assert_eq!(bench.files(), [""; 0]);
    }
}

/// Until there is a database, there is nothing to leave behind.
fn wait_for_database(folder: &Path) {
    let patience = Instant::now() + Duration::from_secs(30);
    let is_there = |folder: &Path| {
        let mut entries = fs::read_dir(folder).expect("the folder is there").flatten();
        entries.any(|entry| entry.path().join("windlass.db").exists())
    };
    while !is_there(folder) {
        assert!(Instant::now() < patience, "no database was made");
        thread::sleep(Duration::from_millis(5));
    }
}

fn send(signal: &str, process: &Child) {
    let sent = Command::new("kill").args(["-s", signal, &process.id().to_string()]).status();
    assert!(sent.expect("there is a shell's kill").success());
}
