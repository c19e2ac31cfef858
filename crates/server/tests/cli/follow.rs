//! Jobs that are followed, looked at and verified while a server works.

use std::{thread, time::Duration};

use serde_json::json;

use crate::{hand::take, serving::Server, shell::Shell};

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
            take(&server, "office").fail(&server, "NO_DATA", "the table is empty", false)
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
