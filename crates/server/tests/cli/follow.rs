//! Jobs that are followed, looked at and verified while a server works.

use std::{thread, time::Duration};

use serde_json::json;

use crate::{
    hand::take,
    serving::{Server, until},
    shell::Shell,
};

#[test]
fn jobs_are_followed_until_their_ends() {
    let mut shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let retry = json!({"base_ms": 100, "max_backoff_ms": 100});
    let job = server.enqueue(&json!({"kind": "mail", "max_retries": 1, "retry": retry}));
    shell.about("A job that fails once and then succeeds.");
    let followed = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            take(&server, "default").fail(&server, "SMTP_BUSY", "try later", true);
            take(&server, "default").succeed(&server, &json!({"sent": 1}));
        });
        shell.run(&format!("windlass job watch {job} --timeout 20s"))
    });
    assert_eq!(followed.code, 0);
    shell.about("For programs, as it happens, and as it stands at the end.");
    let lines = shell.quiet(&format!("windlass job watch {job} -o jsonl"));
    assert_eq!(lines.code, 0, "{}", lines.stderr);
    assert_eq!(lines.stdout.lines().count(), 7, "{}", lines.stdout);
    let document = shell.quiet(&format!("windlass job watch {job} -o json")).json();
    assert_eq!(document["state"], "succeeded");
    shell.about("Two jobs, and one does not succeed.");
    let other = server.enqueue(&json!({"kind": "mail", "max_retries": 0}));
    take(&server, "default").fail(&server, "BAD_ADDRESS", "no such mailbox", false);
    assert_eq!(shell.run(&format!("windlass job watch {job} {other}")).code, 10);
    shell.about("One that does not come to its end.");
    let slow = server.enqueue(&json!({"kind": "mail", "queue": "slow"}));
    assert_eq!(shell.quiet(&format!("windlass job watch {slow} --timeout 300ms")).code, 5);
    shell.run("windlass job watch job_00000000000000000000000007");
    shell.about("Add, wait, and print what came out.");
    let added = thread::scope(|scope| {
        scope.spawn(|| take(&server, "office").succeed(&server, &json!({"sum": 7})));
        shell.run("windlass job add report --queue office --wait=20s")
    });
    assert_eq!((added.code, added.stdout.as_str()), (0, "{\"sum\":7}\n"));
    shell.about("One that does not succeed.");
    let added = thread::scope(|scope| {
        scope.spawn(|| {
            take(&server, "office").fail(&server, "NO_DATA", "the table is empty", false);
        });
        shell.run("windlass job add report --queue office --wait")
    });
    assert_eq!((added.code, added.stdout.as_str()), (10, ""));
    shell.about("Its history is the one that was written.");
    shell.run(&format!("windlass job verify {job} -o jsonl"));
    let verified = shell.quiet(&format!("windlass job verify {job}"));
    assert!(verified.stdout.contains("whole: each of its 7 events"), "{}", verified.stdout);
    shell.run(&format!("windlass job events {job} -n 3"));
    shell.columns(60);
    shell.run(&format!("windlass job events {job} --after 6"));
    shell.columns(100);
    let shown = shell.quiet(&format!("windlass job show {job}")).stdout;
    for part in ["✓ succeeded after 2 tries in ", "Attempts  █ runs", "w1  ✗ try later (SMTP_BUSY)"]
    {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    let shown = shell.quiet(&format!("windlass job show {slow}")).stdout;
    assert!(shown.contains("- no worker listens to queue slow"), "{shown}");
    assert_eq!(shell.quiet(&format!("windlass job show {job} -o json")).json()["job_id"], *job);
    server.stop();
    shell.about("Without a server nothing happens to jobs.");
    shell.run(&format!("windlass job watch {slow}"));
    shell.run("windlass job add report --wait");
    shell.about("Somebody changed the file.");
    let file = shell.folder().join("windlass.db");
    let file = rusqlite::Connection::open(file).expect("it can be opened");
    let change = "UPDATE log SET events = replace(events, '\"user:', '\"user:not-')";
    file.execute_batch(change).expect("it can be changed");
    drop(file);
    let broken = shell.run(&format!("windlass job verify {job}"));
    assert_eq!(broken.code, 1);
    shell.finish("follow");
}

#[test]
fn who_watches_sees_a_server_come_back() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let address = server.address();
    let job = server.enqueue(&json!({"kind": "mail"}));
    let watched = thread::scope(|scope| {
        let watched =
            scope.spawn(|| shell.quiet(&format!("windlass job watch {job} --timeout 25s")));
        thread::sleep(Duration::from_millis(700));
        server.kill();
        thread::sleep(Duration::from_millis(1_500));
        let server = Server::start_at(shell.folder(), "", &address.to_string());
        take(&server, "default").succeed(&server, &json!(null));
        watched.join().expect("it does not panic")
    });
    assert_eq!(watched.code, 0, "{}{}", watched.stdout, watched.stderr);
    assert!(watched.stderr.contains("answers again"), "{}", watched.stderr);
}

#[test]
fn a_list_is_drawn_again_when_something_changed() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let job = server.enqueue(&json!({"kind": "mail"}));
    let drawn = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(1_500));
            take(&server, "default").succeed(&server, &json!(null));
        });
        shell.quiet("timeout 4 windlass job list --watch --every 200ms")
    });
    let lines: Vec<&str> = drawn.stdout.lines().filter(|line| line.contains(&job)).collect();
    assert!(lines.first().is_some_and(|line| line.contains("queued")), "{}", drawn.stdout);
    assert!(lines.last().is_some_and(|line| line.contains("succeeded")), "{}", drawn.stdout);
    assert!(lines.len() <= 4, "it is printed only when it changed:\n{}", drawn.stdout);
}

#[test]
fn who_has_it_in_hand_and_who_was_seen_last_is_told() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let job = server.enqueue(&json!({"kind": "mail", "queue": "post"}));
    let claim = |worker: &str| {
        let body = json!({"worker_id": worker, "queues": ["post"], "start": true});
        let (_, answer) = server.call("POST", "/api/v1/claims", Some(&body));
        answer["leases"][0]["epoch"].clone()
    };
    assert_eq!(claim("w1"), 1);
    let (status, _) = server.call("POST", &format!("/api/v1/internal/jobs/{job}/interrupt"), None);
    assert_eq!(status, 200);
    let entry = json!({"job_id": job, "epoch": claim("w2"), "outcome": "succeeded"});
    let settle = json!({"worker_id": "w2", "leases": [entry]});
    server.call("POST", "/api/v1/leases/settle", Some(&settle));
    let shown = shell.quiet(&format!("windlass job show {job}")).stdout;
    assert!(shown.contains("w1 → w2  ✓ succeeded"), "{shown}");
    let attempt = server.get(&format!("/api/v1/jobs/{job}/attempts"))["items"][0].clone();
    let told = ["first_worker", "last_worker", "ended_by"].map(|name| attempt[name].clone());
    assert_eq!(told, ["w1", "w2", "worker:w2"].map(serde_json::Value::from));
    let (status, _) = server.call("DELETE", "/api/v1/workers/w2", None);
    assert_eq!(status, 200);
    let next = server.enqueue(&json!({"kind": "mail", "queue": "post"}));
    let mut why = String::new();
    until("the silence of the other", || {
        why = shell.quiet(&format!("windlass job why {next}")).stdout;
        why.contains("was seen")
    });
    assert!(
        why.contains("- the last worker that runs kind mail in queue post, w1, was seen "),
        "{why}"
    );
    server.call("DELETE", "/api/v1/workers/w1", None);
    let why = shell.quiet(&format!("windlass job why {next}")).stdout;
    assert!(why.contains("- no worker listens to queue post"), "{why}");
}

#[test]
fn a_long_history_is_shown_in_short_and_read_in_parts() {
    let shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    let job = server.enqueue(&json!({"kind": "mail"}));
    // Each round is a claim and a release: two events.
    for _ in 0..520 {
        let claim = json!({"worker_id": "w1", "max": 1});
        let (_, answer) = server.call("POST", "/api/v1/claims", Some(&claim));
        let epoch = &answer["leases"][0]["epoch"];
        let release = json!({"worker_id": "w1", "leases": [{"job_id": job, "epoch": epoch}]});
        let (_, answer) = server.call("POST", "/api/v1/leases/release", Some(&release));
        assert_eq!(answer["results"][0]["ok"], true, "{answer}");
    }
    let shown = shell.quiet(&format!("windlass job show {job}"));
    assert!(shown.stdout.contains("… 1,011 more: windlass job events"), "{}", shown.stdout);
    assert!(shown.stdout.lines().count() < 70, "{}", shown.stdout);
    let part = shell.quiet(&format!("windlass job events {job} --after 1000 -n 1000"));
    assert_eq!(part.stdout.lines().count(), 1 + 41, "{}", part.stdout);
    let part = shell.quiet(&format!("windlass job events {job} -n 1000"));
    assert!(part.stderr.contains("There are more: --after 1000"), "{}", part.stderr);
}
