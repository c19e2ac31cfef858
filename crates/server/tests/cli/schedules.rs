//! `windlass schedule`.

use crate::shell::Shell;

#[test]
fn schedules_are_made_looked_at_and_ended() {
    let mut shell = Shell::new();
    shell.quiet("windlass token list");
    shell.about("Nothing yet.");
    shell.run("windlass schedule list");
    shell.about("By a wall clock, every so often, or once.");
    shell.run(
        "windlass schedule add nightly report '{\"n\": 1.50}' --cron '30 2 * * *' --zone Europe/Berlin \
         --from 2126-03-30T00:00:00Z --until 2127-01-01T00:00:00Z --queue office --overlap skip --catch-up all:3",
    );
    shell.run("windlass schedule add often --every 15m --anchor 2126-01-01T00:00:00Z --jitter 10s");
    shell.run("windlass schedule add once --at 2126-06-01T12:00:00Z");
    shell.run("windlass schedule list");
    shell.run("windlass schedule show nightly");
    shell.about("In both zones, over a change of clocks.");
    shell.run("windlass schedule preview nightly -n 3 | cut -c1-61");
    shell.run("windlass schedule preview often -n 2 | cut -c1-51");
    shell.about("Held back, and let go on.");
    shell.run("windlass schedule pause nightly --reason 'the office moves'");
    shell.run("windlass schedule list");
    shell.run("windlass schedule resume nightly");
    shell.run("windlass schedule trigger nightly");
    shell.about("Slots that are past.");
    shell.quiet("windlass schedule add hourly --cron @hourly");
    let range = "--from 1999-01-01T00:00:00Z --to 1999-01-01T03:00:00Z";
    shell.run(&format!("windlass schedule backfill hourly {range}"));
    shell.run(&format!("windlass schedule backfill hourly {range} --yes"));
    shell.run(&format!("windlass schedule backfill hourly {range} --yes"));
    shell.run("windlass schedule history hourly -n 3");
    shell.run("windlass schedule history nightly");
    shell.about("A narrow terminal.");
    shell.columns(60);
    shell.run("windlass schedule list");
    shell.run("windlass schedule history nightly");
    shell.columns(100);
    shell.about("It ends.");
    shell.run("windlass schedule delete nightly");
    shell.run("windlass schedule delete nightly --yes");
    shell.run("windlass schedule show nightly");
    shell.about("What cannot be done is said with what to do.");
    shell.run("windlass schedule add a");
    shell.run("windlass schedule add a --cron '61 * * * *'");
    shell.run("windlass schedule add a --cron @daily --zone Mars/Base");
    shell.run("windlass schedule add a --every 15m --catch-up all");
    shell.about("For programs.");
    shell.run("windlass schedule show once -o jsonl");
    shell.run("windlass schedules list -o jsonl");
    shell.run("windlass schedule preview once -o json");
    shell.run(&format!("windlass schedule backfill hourly {range} --yes -o jsonl"));
    shell.finish("schedules");
}
