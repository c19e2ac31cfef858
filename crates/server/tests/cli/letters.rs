//! `windlass dlq`, and acts on many.

use serde_json::json;

use crate::{
    hand::{bury, take},
    serving::Server,
    shell::Shell,
};

#[test]
fn dead_letters_are_looked_at_requeued_and_discarded() {
    let mut shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    shell.run("windlass dlq list");
    shell.run("windlass dlq groups");
    let mail = |n: u32| json!({"kind": "mail", "payload": {"to": "ann@example.com", "n": n}});
    let one = bury(&server, &mail(1), "BAD_ADDRESS", "no such mailbox: ann@example.com");
    let two = bury(&server, &mail(2), "BAD_ADDRESS", "no such mailbox: bob@example.com");
    let three = bury(&server, &json!({"kind": "report", "queue": "office"}), "NO_DATA", "empty");
    shell.run("windlass dlq list");
    shell.about("A narrow terminal.");
    shell.columns(60);
    shell.run("windlass dlq list");
    shell.run(&format!("windlass dlq show {one}"));
    shell.columns(100);
    shell.run("windlass dlq groups");
    shell.run(&format!("windlass dlq show {}", one.replace("dlq_", "job_")));
    shell.about("A new job takes over, with another payload.");
    let line = format!(
        "windlass dlq requeue {one} --payload '{{\"to\": \"ann@example.org\", \"n\": 1.50}}'"
    );
    let made = shell.run(&line).stdout.trim().to_owned();
    assert_eq!(server.get(&format!("/api/v1/jobs/{made}"))["payload"]["to"], "ann@example.org");
    assert_eq!(shell.run(&format!("windlass dlq requeue {one}")).code, 4);
    shell.about("Two people throw one away.");
    assert_eq!(shell.run(&format!("windlass dlq discard {two}")).code, 2);
    shell.run(&format!("windlass dlq discard {two} --reason 'the customer is gone'"));
    shell.run(&format!("windlass dlq show {two}"));
    shell.about("Nobody can answer a question here.");
    assert_eq!(shell.run(&format!("windlass dlq approve {two} --as bob")).code, 2);
    shell.about("The same person cannot agree with herself.");
    assert_eq!(shell.run(&format!("windlass dlq approve {two} --yes")).code, 4);
    shell.run(&format!("windlass dlq approve {two} --as bob --yes"));
    shell.about("All of one cause.");
    shell.run("windlass dlq requeue");
    assert_eq!(shell.run("windlass dlq requeue --code NO_DATA").code, 2);
    shell.run("windlass dlq requeue --code NO_DATA --dry-run");
    shell.run("windlass dlq requeue --code NO_DATA --yes");
    shell.run(&format!("windlass dlq show {three}"));
    shell.run("windlass dlq requeue --code NO_DATA --yes");
    shell.run("windlass dlq list --state open");
    shell.run("windlass dlq show dlq_00000000000000000000000007");
    shell.finish("letters");
}

#[test]
fn jobs_are_cancelled_and_retried_by_what_they_have_in_common() {
    let mut shell = Shell::new();
    let server = Server::start(shell.folder(), "");
    for n in 0..12 {
        server.enqueue(&json!({"kind": "mail", "tags": ["bulk"], "payload": n}));
    }
    server.enqueue(&json!({"kind": "report"}));
    shell.run("windlass job cancel");
    shell.run("windlass job cancel --tag bulk job_00000000000000000000000007");
    shell.run("windlass job cancel --tag nothing --yes");
    shell.about("Nobody can answer a question here.");
    assert_eq!(shell.run("windlass job cancel --tag bulk").code, 2);
    let done = shell.run("windlass job cancel --tag bulk --reason 'sent twice' --yes");
    assert_eq!((done.code, done.stdout.as_str()), (0, "12 jobs cancelled, or asked to stop.\n"));
    let list = shell.quiet("windlass job list --state cancelled -o json").json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(12));
    shell.about("For programs.");
    let operation = shell.quiet("windlass job retry --state cancelled --kind mail --yes -o json");
    let operation = operation.json();
    assert_eq!(
        (&operation["state"], &operation["progress"]["done"]),
        (&json!("succeeded"), &json!(12))
    );
    let preview = shell.quiet("windlass job cancel --kind mail --dry-run -o json").json();
    assert_eq!(preview["count"], 12);
    shell.about("One that was cancelled runs again, as a new job.");
    let job = server.enqueue(&json!({"kind": "mail", "queue": "office"}));
    shell.run(&format!("windlass job cancel {job} --reason 'a mistake'"));
    shell.run(&format!("windlass job retry {job}"));
    take(&server, "office").succeed(&server, &json!(null));
    server.stop();
    shell.about("Without a server the command does it itself.");
    let done = shell.run("windlass job cancel --kind mail --per-second 1000 --yes");
    assert_eq!((done.code, done.stdout.as_str()), (0, "12 jobs cancelled, or asked to stop.\n"));
    shell.finish("many");
}
