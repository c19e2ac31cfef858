//! `windlass queue`.

use crate::shell::Shell;

#[test]
fn queues_are_looked_at_held_back_and_limited() {
    let mut shell = Shell::new();
    shell.quiet("windlass token list");
    shell.about("Nothing yet.");
    shell.run("windlass queue list");
    shell.run("windlass queue rules");
    shell.run("windlass queue show mail");
    for _ in 0..3 {
        shell.quiet("windlass job add send_mail --queue mail");
    }
    shell.quiet("windlass job add report --at 2126-01-01T00:00:00Z");
    shell.about("Queues are there as soon as somebody names them.");
    shell.run("windlass queue list");
    shell.run("windlass queue pause mail --reason 'the provider is down'");
    shell.run("windlass queue drain office");
    shell.run("windlass queue limit mail --concurrency 10");
    shell.run(
        "windlass queue limit mail --rate 100/1m --per key --burst 5 --reason 'they asked for it'",
    );
    shell.run("windlass queue limit mail --concurrency 1 --kind invoice --kind receipt --name one-paper-at-a-time");
    shell.run("windlass queue list");
    shell.run("windlass queue show mail");
    shell.run("windlass queue rules");
    shell.run("windlass queue rules office");
    shell.about("A narrow terminal.");
    shell.columns(50);
    shell.run("windlass queue list");
    shell.run("windlass queue show mail");
    shell.run("windlass queue rules");
    shell.columns(100);
    shell.about("Back to normal.");
    shell.run("windlass queue resume mail");
    shell.run("windlass queue rules --remove one-paper-at-a-time --reason 'it is over'");
    shell.about("What cannot be done is said with what to do.");
    shell.run("windlass queue resume mail");
    shell.run("windlass queue rules --remove nothing");
    shell.run("windlass queue limit mail");
    shell.run("windlass queue limit mail --rate 100");
    shell.run("windlass queue limit mail --rate 1/1m --burst 2");
    shell.about("For programs.");
    shell.run("windlass queue list -o jsonl");
    shell.run("windlass queues show mail -o json");
    shell.run("windlass queue limit office --concurrency 2 -o jsonl");
    shell.run("windlass queue rules office -o jsonl");
    shell.finish("queues");
}
