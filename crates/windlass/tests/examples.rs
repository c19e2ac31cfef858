//! Every example runs, and says what it is here to say.
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

use std::{env, fs, path::Path, process::Command};

use windlass_testkit::postgres::Cluster;

/// Runs an example, and gives back what it printed.
fn run(name: &str, args: &[&str]) -> String {
    // Examples are built beside the tests.
    let tests = env::current_exe().unwrap();
    let path = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
    // What it leaves behind goes with the folder.
    let folder = tempfile::tempdir().unwrap();
    let ended = Command::new(&path).args(args).current_dir(folder.path()).output().unwrap_or_else(
        |error| {
            panic!("{}: {error}; cargo build --examples builds it", path.display());
        },
    );
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success(), "{name} failed: {told}");
    String::from_utf8(ended.stdout).unwrap()
}

#[track_caller]
fn check(name: &str, expected: &str) {
    assert_eq!(run(name, &[]).trim_end(), expected, "{name}");
}

#[test]
fn first_job() {
    check("first_job", "sent to ann@example.com");
}

#[test]
fn retries() {
    let expected = "\
charged in attempt 3
dead letter: CARD_UNKNOWN: the bank does not know this card
requeued: succeeded";
    check("retries", expected);
}

#[test]
fn idempotency() {
    let expected = "\
the same job: true
refused: the idempotency key belongs to the first job, which differs in payload
another job: true";
    check("idempotency", expected);
}

#[test]
fn cancellation() {
    check("cancellation", "told to stop: Cancelled\ncancelled");
}

#[test]
fn rules() {
    let said = run("rules", &[]);
    for words in [
        "rule gentle of user:app keeps it: 2 are held of 2 that may be: job_",
        "rule one per customer of user:app keeps it: 1 are held of 1 that may be: job_",
        "is queued\n- rule night of user:app keeps it: it is paused (maintenance)",
        "is succeeded\n- it came to its end at",
    ] {
        assert!(said.contains(words), "{words}\n{said}");
    }
}

#[test]
fn fencing() {
    let expected = "\
epoch 1 stands still
succeeded
the late write: epoch 1 is older than 2
the page of epoch 2 says \"news\"";
    check("fencing", expected);
}

#[test]
fn transaction() {
    check("transaction", "order 1 is confirmed\nrolled back: true");
}

#[test]
fn transaction_postgres() {
    let port = Cluster::shared().port();
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let printed = run("transaction_postgres", &[&url]);
    assert_eq!(printed.trim_end(), "order 1 is confirmed\nrolled back: true");
}

#[test]
fn graceful_shutdown() {
    let expected = "\
short: succeeded
long: interrupted
long: succeeded, 0 interruptions counted";
    check("graceful_shutdown", expected);
}

#[test]
fn testing() {
    let expected = "\
succeeded in attempt 3
scheduled → due → worker_claim → started → timeout → retry_due → started → retryable_error → retry_due → started \
→ process_restart → recovery_resume → started → completed";
    check("testing", expected);
}

#[test]
fn schedules() {
    let expected = "\
2026-03-28T02:30:00+01:00[Europe/Berlin] is 2026-03-28T01:30:00Z
2026-03-29T03:00:00+02:00[Europe/Berlin] is 2026-03-29T01:00:00Z
2026-03-30T02:30:00+02:00[Europe/Berlin] is 2026-03-30T00:30:00Z
created, next at 2026-03-28T01:30:00Z
fired for 2026-03-28T01:30:00Z
fired for 2026-03-29T01:00:00Z
paused: the printer is broken
resumed
skipped: paused
filled in: 1 new, 2 known
nightly@2026-03-30T00:30:00Z: queued";
    check("schedules", expected);
}

/// Ids differ each time: what is said of them is who is part of whom.
#[test]
fn traces() {
    let said = run("traces", &[]);
    let of = |name: &str| -> [String; 2] {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let line = line.unwrap_or_else(|| panic!("{name}\n{said}"));
        let (id, parent) = line.split_once(" is part of ").unwrap();
        [id, parent].map(str::to_owned)
    };
    let line = ["enqueue order", "execute order", "enqueue mail", "execute mail"].map(of);
    assert_eq!(line[0][1], "00f067aa0ba902b7");
    for pair in line.windows(2) {
        assert_eq!(pair[1][1], pair[0][0], "{said}");
    }
}

/// It needs a server: `server/tests/client` runs the same program on one.
#[test]
fn remote() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let code = |name: &str| {
        let text = fs::read_to_string(root.join("examples").join(name)).unwrap();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let first = code("first_job.rs").replace("sqlite:jobs.db", "http://127.0.0.1:7117");
    assert_eq!(code("remote.rs"), first, "only the address differs from the first job");
}

#[test]
fn each_example_is_run_here_and_the_readme_shows_the_first() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let here = fs::read_to_string(root.join("tests/examples.rs")).unwrap();
    for file in fs::read_dir(root.join("examples")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(here.contains(&format!("fn {name}()")), "nobody runs {name}");
    }
    let readme = fs::read_to_string(root.join("../../README.md")).unwrap();
    let first = fs::read_to_string(root.join("examples/first_job.rs")).unwrap();
    let (_doc, code) = first.split_once("\n\n").unwrap();
    assert!(readme.contains(code), "the README shows another first job than examples/first_job.rs");
}
