//! `windlass job`.

use crate::shell::Shell;

#[test]
fn jobs_are_made_listed_and_cancelled() {
    let mut shell = Shell::new();
    shell.about("Without a database nothing is made by accident.");
    shell.run("windlass job list");
    shell.about("A database that nobody serves can be looked at all the same.");
    shell.quiet("windlass token list");
    shell.run("windlass job list");
    let job = shell.run("windlass job add send_mail '{\"to\": \"ann@example.com\", \"n\": 1.50}'");
    let job = job.stdout.trim().to_owned();
    shell.run("windlass job add report --queue office --at 2126-01-02T03:04:05Z --tag monthly");
    shell.run("windlass job list");
    shell.about("A narrow terminal.");
    shell.columns(60);
    shell.run("windlass job list");
    shell.columns(100);
    shell.run("windlass job list --kind nothing");
    shell.run(&format!("windlass job why {job}"));
    shell.run(&format!("windlass job cancel {job}"));
    shell.about("What cannot be done is said with what to do.");
    shell.run(&format!("windlass job cancel {job}"));
    shell.run("windlass job why job_00000000000000000000000007");
    shell.run("windlass job add send_mail '{to: ann}'");
    shell.run("windlass job list --state done");
    shell.run("windlass job list --server http://127.0.0.1:1");
    shell.quiet("echo 'no database, whatever its name says' > other.db");
    shell.run("windlass job list --store sqlite:other.db");
    shell.about("For programs.");
    shell.run(&format!("windlass job why {job} -o jsonl"));
    shell.run("windlass job why job_00000000000000000000000007 -o json");
    shell.finish("jobs");
}
