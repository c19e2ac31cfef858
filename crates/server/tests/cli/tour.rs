//! Every command, before anything is there and when there is a lot, in a narrow terminal and in a wide one.
//!
//! The same lines are typed twice, so that `pages/narrow.txt` and `pages/wide.txt` can be read side by side. What a command
//! says when something is wrong stands on the pages of its own test.

use std::{collections::BTreeSet, fs, thread};

use serde_json::json;

use crate::{
    hand::{bury, take},
    serving::Server,
    shell::{Shell, pages},
};

/// How wide a narrow terminal is: half of a usual screen.
const NARROW: usize = 60;
const WIDE: usize = 120;

/// Commands that show what there is: they have to say something kind when there is nothing.
const LISTS: &[&str] = &[
    "job list",
    "dlq list",
    "dlq groups",
    "queue list",
    "queue rules",
    "schedule list",
    "token list",
    "migrate plan",
    "top",
    "doctor",
];

/// What begins the part of a page that is about nothing.
const EMPTY: &str = "# Nothing yet.";

#[test]
fn everything_in_a_narrow_terminal() {
    tour(NARROW).finish("narrow");
}

#[test]
fn everything_in_a_wide_terminal() {
    tour(WIDE).finish("wide");
}

/// A command without its page turns this red: the commands are those that the program itself knows of.
#[test]
fn every_command_has_its_page_narrow_and_wide() {
    let known = commands();
    assert!(known.len() > 45, "{known:?}");
    for kind in ["narrow", "wide"] {
        let pages: Vec<String> = ["", "dev_", "crash_"]
            .map(|part| pages().join(format!("{part}{kind}.txt")))
            .iter()
            .map(|path| fs::read_to_string(path).unwrap_or_else(|why| panic!("{path:?}: {why}")))
            .collect();
        let shown: BTreeSet<&str> = pages
            .iter()
            .flat_map(|page| done(page))
            .filter_map(|line| named(line, &known))
            .collect();
        let missing: Vec<&String> =
            known.iter().filter(|command| !shown.contains(command.as_str())).collect();
        assert!(missing.is_empty(), "not on the {kind} pages: {missing:?}");
        let empty = pages[0].split("\n# ").next().expect("it begins with something");
        assert!(empty.starts_with(EMPTY), "{empty}");
        let empty: BTreeSet<&str> =
            done(empty).into_iter().filter_map(|line| named(line, &known)).collect();
        for list in LISTS {
            assert!(empty.contains(list), "{list} is not shown {kind} before anything is there");
        }
    }
}

/// Every command that can be run, such as `job add`, from the manual pages that the program writes of itself.
fn commands() -> Vec<String> {
    let shell = Shell::new();
    let written = shell.quiet("windlass man pages");
    assert_eq!(written.code, 0, "{}", written.stderr);
    let files = fs::read_dir(shell.folder().join("pages")).expect("they are written");
    let mut names: Vec<String> = files
        .map(|file| file.expect("it can be read").file_name().display().to_string())
        .filter_map(|name| Some(name.strip_suffix(".1")?.strip_prefix("windlass-")?.to_owned()))
        .map(|name| name.replace('-', " "))
        .collect();
    names.sort();
    let is_group = |name: &String| names.iter().any(|it| it.starts_with(&format!("{name} ")));
    // A demo is a command of its own, beside the one below it.
    names.iter().filter(|name| *name == "demo" || !is_group(name)).cloned().collect()
}

/// The lines of a page that were typed and did what they should.
fn done(page: &str) -> Vec<&str> {
    let parts = page.split("\n$ ").skip(usize::from(!page.starts_with("$ ")));
    parts
        .filter(|part| !part.contains("\nexit: "))
        .map(|part| part.trim_start_matches("$ ").lines().next().unwrap_or_default())
        .collect()
}

/// The command that a line is about.
fn named<'a>(line: &str, known: &'a [String]) -> Option<&'a str> {
    let (_, typed) = line.split_once("windlass ")?;
    let begins = |name: &&String| typed == *name || typed.starts_with(&format!("{name} "));
    known.iter().filter(begins).max_by_key(|name| name.len()).map(String::as_str)
}

/// Sizes and figures differ from machine to machine.
const SIZES: &str = "sed -E 's/[0-9.]+ (k|M|G|T)?B/SIZE/g; s/incarnation [0-9]+/incarnation 7/'";
const FIGURES: &str = "sed -E 's/[0-9][0-9_.]*/N/g; s/ +/ /g'";

fn tour(columns: usize) -> Shell {
    let mut shell = Shell::new();
    shell.columns(columns);
    shell.about(EMPTY.trim_start_matches("# "));
    shell.run("windlass migrate status");
    shell.run("windlass migrate plan");
    shell.run("windlass migrate up");
    for list in ["job list", "dlq list", "dlq groups", "queue list", "queue rules"] {
        shell.run(&format!("windlass {list}"));
    }
    shell.run("windlass schedule list");
    shell.run("windlass token list");
    shell.run("windlass top --once");
    shell.run(&format!("windlass doctor | {SIZES}"));
    setting_up(&mut shell);
    let server = Server::start(shell.folder(), "[executors.http]\nqueues = [\"elsewhere\"]");
    jobs(&mut shell, &server);
    letters(&mut shell, &server);
    queues(&mut shell);
    schedules(&mut shell);
    shell.about("How it is.");
    shell.run("windlass top --once");
    shell.run("timeout --preserve-status 2 windlass worker --queue nothing 2> /dev/null");
    server.stop();
    looking_after(&mut shell);
    shell
}

fn setting_up(shell: &mut Shell) {
    shell.about("Setting up.");
    shell.run("windlass config init");
    shell.run("windlass config check");
    shell.run("windlass config show --origins | head -n 12");
    shell.run("windlass completions fish | head -n 3");
    shell.run("windlass man pages");
    shell.run("windlass explain | head -n 20");
    shell.run("windlass explain interrupted");
    shell.run("windlass explain AMBIGUOUS");
    shell.run("windlass token add ann --role admin | sed -E 's/windlass_01.*/SECRET/'");
    shell.run("timeout --preserve-status 2 windlass serve --listen 127.0.0.1:0 2> /dev/null");
}

fn jobs(shell: &mut Shell, server: &Server) {
    shell.about("Jobs.");
    let mail = "windlass job add send_mail '{\"to\": \"ann@example.com\"}' --max-retries 2";
    let job = shell.run(mail).stdout.trim().to_owned();
    shell.run(&format!("windlass job why {job}"));
    take(server, "default").succeed(server, &json!({"sent": true}));
    shell.run(&format!("windlass job watch {job}"));
    shell.run(&format!("windlass job events {job}"));
    shell.run(&format!("windlass job verify {job} | sed -E 's/ in [0-9.]+m?s//'"));
    // Its bars depend on how fast all that went; `job_show.txt` has them.
    let bars = "sed -E '/^Attempts/,/^$/d; s/[0-9.]+m?s( |$)/TIME\\1/g; s/ +$//'";
    shell.run(&format!("windlass job show {job} | {bars}"));
    let other = server.enqueue(&json!({"kind": "report", "queue": "office"}));
    shell.run(&format!("windlass job cancel {other} --reason 'nobody reads it'"));
    shell.run(&format!("windlass job retry {other}"));
    let durable = server.enqueue(&json!({"kind": "order", "queue": "durable"}));
    ask_a_person(server, &durable);
    shell.run(&format!("windlass job steps {durable}"));
    shell.run(&format!("windlass job signal {durable} approved '{{\"by\": \"ann\"}}'"));
    shell.run(&format!("windlass job signal {durable} approved '{{\"by\": \"ann\"}}'"));
    let stated = "--step charge --happened '{\"id\": 7}' --reason 'the bank says so'";
    shell.run(&format!("windlass job resume {durable} {stated}"));
    thread::scope(|scope| {
        scope.spawn(|| take(server, "sums").succeed(server, &json!({"sum": 7})));
        shell.run("windlass job add report --queue sums --wait=20s");
    });
    shell.run("windlass job list");
}

/// A durable job with a step on record and one of which nobody knows what became.
fn ask_a_person(server: &Server, job: &str) {
    let held = take(server, "durable");
    let call = |path: &str, body: &serde_json::Value| {
        let (status, answer) =
            server.call("POST", &format!("/api/v1/jobs/{job}/{path}"), Some(body));
        assert_eq!(status, 200, "{answer}");
    };
    let epoch = held.epoch;
    let next = json!({"step_key": "charge", "mode": "once", "call_id": 1});
    let price =
        json!({"step_key": "price", "mode": "pure", "output": 12, "epoch": epoch, "begin": next});
    call("steps/commit", &price);
    let operator =
        json!({"code": "EFFECT_UNKNOWN", "message": "was it charged?", "step_key": "charge"});
    call("waits", &json!({"epoch": epoch, "operator": operator}));
}

fn letters(shell: &mut Shell, server: &Server) {
    shell.about("Dead letters.");
    let mail = |n: u32| json!({"kind": "send_mail", "queue": "post", "payload": {"n": n}});
    let one = bury(server, &mail(1), "BAD_ADDRESS", "no such mailbox: ann@example.com");
    let two = bury(server, &mail(2), "BAD_ADDRESS", "no such mailbox: bob@example.com");
    shell.run("windlass dlq list");
    shell.run("windlass dlq groups");
    shell.run(&format!("windlass dlq show {one}"));
    shell.run(&format!("windlass dlq requeue {one}"));
    shell.run(&format!("windlass dlq discard {two} --reason 'the customer is gone'"));
    shell.run(&format!("windlass dlq approve {two} --as bob --yes"));
}

fn queues(shell: &mut Shell) {
    shell.about("Queues.");
    shell.run("windlass queue pause post --reason 'the provider is down'");
    shell.run("windlass queue drain office");
    shell.run("windlass queue limit post --rate 100/1m --per key --burst 5");
    shell.run("windlass queue list");
    shell.run("windlass queue show post");
    shell.run("windlass queue rules");
    shell.run("windlass queue resume office");
}

fn schedules(shell: &mut Shell) {
    shell.about("Schedules.");
    shell.run(
        "windlass schedule add nightly report '{\"n\": 1.50}' --cron '30 2 * * *' \
         --zone Europe/Berlin --from 2126-03-30T00:00:00Z --overlap skip",
    );
    shell.quiet("windlass schedule add yearly --cron '0 3 1 1 *'");
    shell.run("windlass schedule list");
    shell.run("windlass schedule show nightly");
    shell.run("windlass schedule preview nightly -n 2 | sed -E 's/  in [0-9]+d//'");
    shell.run("windlass schedule pause nightly --reason 'the office moves'");
    shell.run("windlass schedule resume nightly");
    shell.run("windlass schedule trigger nightly");
    let range = "--from 1997-01-01T00:00:00Z --to 1999-01-01T00:00:00Z";
    shell.run(&format!("windlass schedule backfill yearly {range} --yes"));
    shell.run("windlass schedule history yearly");
    shell.run("windlass schedule history nightly");
    shell.run("windlass schedule delete nightly --yes");
}

fn looking_after(shell: &mut Shell) {
    shell.about("Looking after it.");
    let issued = shell.quiet("windlass token list -o json").json();
    let token = issued["items"][0]["token_id"].as_str().expect("it was issued").to_owned();
    shell.run("windlass token list");
    shell.run(&format!("windlass token revoke {token} --yes --force"));
    shell.run(&format!("windlass doctor --deep | {SIZES}"));
    shell.run(&format!("windlass backup monday.db | {SIZES}"));
    shell.run(&format!("windlass restore monday.db --force | {SIZES}"));
    shell.run("windlass migrate status");
    shell.run("windlass migrate plan");
    shell.run("windlass replay RP-003");
    shell.run(&format!("windlass bench enqueue --jobs 50 --yardstick 2> /dev/null | {FIGURES}"));
}
