//! Real programs: what they are given, what is kept, and that nothing of them is left.

use std::{fs, path::Path, time::Instant};

use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use windlass::{Ended as JobEnded, Engine, JobRequest, State, Worker};

use super::*;
use crate::executors::template::Template;

fn allowed(args: &[&str]) -> AllowedCommand {
    let args: Vec<String> = args.iter().map(ToString::to_string).collect();
    AllowedCommand {
        program: "/bin/sh".into(),
        args: Template::parse(&args).unwrap(),
        env: BTreeMap::new(),
        directory: "/".into(),
        output_bytes_max: 64 * 1024,
        retry_exit_codes: Vec::new(),
    }
}

/// A worker that can run one command, called `it`.
async fn work(allowed: AllowedCommand) -> (Engine, Worker, Processes) {
    let engine = Engine::open("sqlite::memory:").await.unwrap();
    let processes = Processes::new();
    let allow = BTreeMap::from([("it".to_owned(), allowed)]);
    let grace = Duration::from_millis(500);
    let state = Arc::new(Commands { allow, processes: processes.clone(), grace });
    let worker = engine.worker().state(state).grace(grace).handle_kind(KIND, run);
    (engine, worker.start().await.unwrap(), processes)
}

async fn call(engine: &Engine, payload: Value) -> JobEnded {
    let job = JobRequest::of(KIND, &payload).max_retries(0);
    let id = engine.enqueue(job).await.unwrap().id;
    engine.wait(id).await.unwrap()
}

fn result(ended: &JobEnded) -> Value {
    assert_eq!(ended.job.state, State::Succeeded, "{ended:?}");
    ended.result().unwrap()
}

fn failure(ended: &JobEnded) -> Failure {
    ended.job.error.clone().unwrap_or_else(|| panic!("it did not fail: {ended:?}"))
}

/// The numbers of processes in a file, once there are so many.
async fn pids(file: &Path, count: usize) -> Vec<Pid> {
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < Duration::from_secs(30), "it does not say who it is");
        let text = fs::read_to_string(file).unwrap_or_default();
        let found: Vec<_> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
        if found.len() >= count {
            return found.into_iter().filter_map(Pid::from_raw).collect();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_there(pid: Pid) -> bool {
    // One that nobody has reaped yet is dead all the same.
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let is_zombie = stat.is_ok_and(|stat| stat.rsplit(") ").next().unwrap_or("").starts_with('Z'));
    test_kill_process(pid).is_ok() && !is_zombie
}

async fn are_gone(pids: &[Pid], within: Duration) {
    let began = Instant::now();
    while pids.iter().any(|pid| is_there(*pid)) {
        assert!(began.elapsed() < within, "some are still there after {within:?}: {pids:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A shell that ignores to be told, and has children and grandchildren that do so, too.
const STUBBORN: &str = r#"
    trap '' TERM INT HUP
    echo $$ >> "$1"
    (trap '' TERM; echo $(exec sh -c 'echo $PPID') >> "$1"; (trap '' TERM; sh -c 'echo $$ >> "$0"; while :; do sleep 1; done' "$1") & while :; do sleep 1; done) &
    while :; do sleep 1; done"#;

#[tokio::test]
async fn a_program_gets_its_arguments_its_input_and_a_clean_environment() {
    let script = r#"printf '%s|' "$@"; cat; env | sort; pwd"#;
    let mut allowed = allowed(&["-c", script, "name", "{a}", "fixed", "{b}"]);
    allowed.env.insert("COLOUR".to_owned(), "blue".to_owned());
    let (engine, _worker, _) = work(allowed).await;
    let payload =
        json!({ "command": "it", "args": {"a": "$(id) `id` ; x", "b": 7}, "stdin": "in\n" });
    let id = engine.enqueue(JobRequest::of(KIND, &payload)).await.unwrap().id;
    let kept = result(&engine.wait(id).await.unwrap());
    let stdout = kept["stdout"].as_str().unwrap();
    assert!(stdout.starts_with("$(id) `id` ; x|fixed|7|in\n"), "{stdout}");
    assert!(stdout.contains(&format!("WINDLASS_EXECUTION_KEY={id}+0\n")), "{stdout}");
    assert!(stdout.contains(&format!("WINDLASS_JOB_ID={id}\n")), "{stdout}");
    assert!(stdout.contains("COLOUR=blue\n") && stdout.ends_with("/\n"), "{stdout}");
    // PWD, SHLVL and _ are the shell's own.
    let known = ["COLOUR", "PATH", "PWD", "SHLVL", "_", "OLDPWD"];
    for line in stdout.lines().filter(|line| line.contains('=')) {
        let name = line.split('=').next().unwrap();
        assert!(known.contains(&name) || name.starts_with("WINDLASS_"), "{line}");
    }
    assert_eq!((&kept["exit_code"], &kept["stderr"]), (&json!(0), &json!("")));
}

#[tokio::test]
async fn only_what_the_config_names_is_run() {
    let (engine, _worker, _) = work(allowed(&["-c", "echo", "{x}"])).await;
    for name in ["other", "", "/bin/sh", "it ", "IT", "../it", "it; id", "it\0", "sh"] {
        let failure = failure(&call(&engine, json!({ "command": name })).await);
        assert_eq!(
            (failure.code.as_str(), failure.retryable),
            (COMMAND_NOT_ALLOWED, false),
            "{name}"
        );
    }
    let dash = json!({ "command": "it", "args": {"x": "--version"} });
    assert_eq!(failure(&call(&engine, dash).await).code, COMMAND_NOT_ALLOWED);
    for payload in [
        json!({ "command": "it" }),
        json!({ "command": "it", "args": {"x": "a", "y": "b"} }),
        json!({ "command": "it", "args": {"x": "a\0b"} }),
        json!({ "command": "it", "args": "x" }),
        json!({ "command": "it", "args": {"x": "a"}, "program": "/bin/ls" }),
        json!({ "command": "it", "args": {"x": "a"}, "env": {"LD_PRELOAD": "x"} }),
        json!({ "command": ["it"] }),
        json!({}),
    ] {
        assert_eq!(failure(&call(&engine, payload.clone()).await).code, PAYLOAD_UNFIT, "{payload}");
    }
}

#[tokio::test]
async fn an_exit_code_says_whether_trying_again_may_help() {
    let mut allowed = allowed(&["-c", "echo out; echo why >&2; exit $0", "{code}"]);
    allowed.retry_exit_codes = vec![3];
    let (engine, _worker, _) = work(allowed).await;
    for (code, wanted) in
        [(1, false), (2, false), (3, true), (75, true), (127, false), (255, false)]
    {
        let payload = json!({ "command": "it", "args": {"code": code} });
        let failure = failure(&call(&engine, payload).await);
        assert_eq!(failure.retryable, wanted, "{code}");
        assert_eq!(failure.message, format!("it ended with code {code}: why"));
    }
    let (engine, _worker, _) =
        work(AllowedCommand { program: "/no/such".into(), ..self::allowed(&[]) }).await;
    let gone = failure(&call(&engine, json!({ "command": "it" })).await);
    assert_eq!(gone.code, COMMAND_NOT_STARTED);
}

#[tokio::test]
async fn a_program_that_was_killed_has_failed() {
    let (engine, _worker, _) = work(allowed(&["-c", "kill -9 $$"])).await;
    let killed = failure(&call(&engine, json!({ "command": "it" })).await);
    assert_eq!((killed.code.as_str(), killed.retryable), (COMMAND_FAILED, false));
    assert_eq!(killed.message, "it was ended by signal 9");
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_marked() {
    let script = "head -c 3000000 /dev/zero; head -c 1000 /dev/zero | tr '\\0' e >&2";
    let mut allowed = allowed(&["-c", script]);
    allowed.output_bytes_max = 81_920;
    let (engine, _worker, _) = work(allowed).await;
    let kept = result(&call(&engine, json!({ "command": "it" })).await);
    let stdout = kept["stdout"].as_str().unwrap();
    assert!(stdout.ends_with("\n[cut: 2918080 more bytes]"), "{}", &stdout[stdout.len() - 60..]);
    assert_eq!(kept["stderr"].as_str().unwrap().len(), 1_000);
    // Bytes that are no text are shown as such.
    let (engine, _worker, _) = work(self::allowed(&["-c", "printf 'a\\377b'"])).await;
    assert_eq!(result(&call(&engine, json!({ "command": "it" })).await)["stdout"], "a\u{fffd}b");
}

#[tokio::test]
async fn a_program_that_never_stops_writing_is_gone_after_its_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = r#"echo $$ >> "$0"; exec yes"#;
    let (engine, _worker, processes) = work(allowed(&["-c", script, "{file}"])).await;
    let payload = json!({ "command": "it", "args": {"file": file} });
    let job = JobRequest::of(KIND, &payload).max_retries(0).timeout(Duration::from_millis(500));
    let id = engine.enqueue(job).await.unwrap().id;
    let ended = engine.wait(id).await.unwrap();
    assert_eq!(failure(&ended).code, "TASK_TIMEOUT");
    processes.all_ended().await;
    are_gone(&pids(&file, 1).await, Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_ignores_to_be_told_is_gone_with_its_grandchildren_after_the_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let (engine, _worker, processes) = work(allowed(&["-c", STUBBORN, "sh", "{file}"])).await;
    let payload = json!({ "command": "it", "args": {"file": file} });
    let job = JobRequest::of(KIND, &payload).max_retries(0).timeout(Duration::from_secs(3));
    let id = engine.enqueue(job).await.unwrap().id;
    let family = pids(&file, 3).await;
    assert!(family.iter().all(|pid| is_there(*pid)), "{family:?}");
    assert_eq!(failure(&engine.wait(id).await.unwrap()).code, "TASK_TIMEOUT");
    processes.all_ended().await;
    are_gone(&family, Duration::from_secs(1)).await;
}

#[tokio::test]
async fn one_that_is_cancelled_is_gone_before_its_job_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let (engine, _worker, _) = work(allowed(&["-c", STUBBORN, "sh", "{file}"])).await;
    let payload = json!({ "command": "it", "args": {"file": file} });
    let id = engine.enqueue(JobRequest::of(KIND, &payload)).await.unwrap().id;
    let family = pids(&file, 3).await;
    engine.cancel(id).await.unwrap();
    assert_eq!(engine.wait(id).await.unwrap().job.state, State::Cancelled);
    are_gone(&family, Duration::from_millis(500)).await;
}

#[tokio::test]
async fn a_shutdown_leaves_no_program_behind_and_its_job_goes_on_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let (engine, worker, processes) = work(allowed(&["-c", STUBBORN, "sh", "{file}"])).await;
    let payload = json!({ "command": "it", "args": {"file": file} });
    let id = engine.enqueue(JobRequest::of(KIND, &payload)).await.unwrap().id;
    let family = pids(&file, 3).await;
    worker.shutdown().await.unwrap();
    processes.all_ended().await;
    are_gone(&family, Duration::from_secs(1)).await;
    let job = engine.job(id).await.unwrap();
    assert!(!job.state.is_end() && job.lease.is_none(), "{job:?}");
    assert_eq!(job.retry_count, 0);
}

#[tokio::test]
async fn what_a_program_leaves_running_goes_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pids");
    let script = r#"sh -c 'echo $$ >> "$0"; exec sleep 60' "$0" & while ! [ -s "$0" ]; do :; done; echo done"#;
    let (engine, _worker, _) = work(allowed(&["-c", script, "{file}"])).await;
    let began = Instant::now();
    let kept = result(&call(&engine, json!({ "command": "it", "args": {"file": file} })).await);
    assert_eq!(kept["stdout"], "done\n");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    are_gone(&pids(&file, 1).await, Duration::from_secs(1)).await;
}
