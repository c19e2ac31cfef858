//! `windlass demo crash`: a server of its own is really killed in mid-job, and started again.
//!
//! Always true here: what is said was seen. The process is killed with SIGKILL, the effects are counted in a file that
//! the store knows nothing of and that handlers only add to, and the history is the job's own.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};
use windlass_kernel::Timestamp;

use crate::{
    cli::{
        Output,
        api::{Api, Document, path},
        look::{
            output,
            terminal::print,
            times::clock,
            view::{BOLD, DIM, View, state},
        },
        trouble::Trouble,
    },
    demo::{Done, IMPORT, Import, QUEUE, REPORT},
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// So long a line of the log may be late, and no longer.
const LATE_MAX: Duration = Duration::from_secs(5);

#[derive(Args)]
pub(crate) struct Crash {
    /// How many steps the job has.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=100))]
    steps: u32,
    /// How long a step takes, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=10_000))]
    step_ms: u64,
    /// Let the handler forget its place, so that it begins anew and what it did before is done twice.
    #[arg(long)]
    forget: bool,
}

/// What was seen, for programs.
#[derive(Serialize)]
struct Seen {
    job_id: String,
    state: String,
    killed_process: u32,
    resumed: String,
    /// The states of the job, in order.
    states: Vec<String>,
    steps: u32,
    /// The steps by the epoch whose execution did them.
    steps_by_epoch: Vec<(u64, Vec<u32>)>,
    /// Effects that are in the ledger more than once.
    effects_repeated: usize,
}

#[derive(Deserialize)]
struct Enqueued {
    job: Made,
}

#[derive(Deserialize)]
struct Made {
    job_id: String,
}

#[derive(Deserialize)]
struct Stands {
    state: String,
    progress: Option<Done>,
}

#[derive(Deserialize)]
struct Event {
    at: Timestamp,
    cause: String,
    from: Option<String>,
    to: String,
    epoch: u64,
}

pub(super) async fn run(command: &Crash, view: &View) -> Result<(), Trouble> {
    let folder = TempDir::with_prefix("windlass-crash-");
    let folder =
        folder.map_err(|error| Trouble::failed(format!("no temporary folder: {error}")))?;
    let say = |text: String| view.say(&text);
    say(format!("{BOLD}1. A server starts, with a database of its own.{BOLD:#}"));
    let mut first = Server::start(folder.path(), view).await?;
    let report = first.enqueue(REPORT, &json!({"of": "today"})).await?;
    first.until(&report, |job| job.state == "succeeded").await?;
    first.told_the_end(&report).await;
    say(format!("\n{BOLD}2. A job of {} steps is half done.{BOLD:#}", command.steps));
    let Crash { steps, step_ms, forget } = *command;
    let import = Import { steps, step_ms, forget };
    let job = first.enqueue(IMPORT, &json!(import)).await?;
    let half = command.steps / 2;
    first.until(&job, |job| job.progress.as_ref().is_some_and(|done| done.step >= half)).await?;
    // At once, while the job is in the middle: what the server said before is read to its end.
    let killed_process = first.process();
    first.kill().await?;
    say(format!("  {DIM}│{DIM:#} {half} of {} steps are done", command.steps));
    say(format!("\n{BOLD}3. The server is killed: kill -9 {killed_process}{BOLD:#}"));
    say(format!("\n{BOLD}4. It is started again, on the same database.{BOLD:#}"));
    let mut second = Server::start(folder.path(), view).await?;
    let resumed = second.resumed(&job).await?;
    let ended = second.until(&job, |job| job.state == "succeeded").await?;
    second.told_the_end(&job).await;
    let events = second.api.page(&path(&["jobs", &job, "events"])).await?;
    let events: Vec<Event> = events.read()?;
    let effects = fs::read_to_string(ledger(folder.path())).unwrap_or_default();
    let seen = Seen {
        killed_process,
        resumed,
        states: events.iter().map(|event| event.to.clone()).collect(),
        steps: command.steps,
        steps_by_epoch: steps_by_epoch(&effects, &job),
        effects_repeated: repeated(&effects),
        state: ended.state,
        job_id: job,
    };
    second.kill().await?;
    match view.output {
        Output::Table => {
            print(&history(&events, view));
            print(&counted(&seen, &effects, &report, command.forget));
        }
        Output::Json | Output::Jsonl => output::show(view.output, "", &seen),
    }
    let done: BTreeSet<u32> =
        seen.steps_by_epoch.iter().flat_map(|(_, steps)| steps.iter().copied()).collect();
    match done.len() == command.steps as usize {
        true => Ok(()),
        false => Err(Trouble::failed(format!("of {} steps {} ran", command.steps, done.len()))),
    }
}

fn history(events: &[Event], view: &View) -> String {
    let mut text = format!("\n{BOLD}5. What the job's history says{BOLD:#}\n");
    for event in events {
        let from = event.from.as_deref().map_or_else(String::new, |from| format!("{from} → "));
        text.push_str(&format!(
            "  {DIM}{}{DIM:#}  {DIM}{from}{DIM:#}{}  {DIM}{}, epoch {}{DIM:#}\n",
            clock(event.at, view.times),
            state(&event.to),
            event.cause,
            event.epoch
        ));
    }
    text
}

fn counted(seen: &Seen, effects: &str, report: &str, forget: bool) -> String {
    let mut text = format!("\n{BOLD}6. What was counted outside, in a plain file{BOLD:#}\n");
    for (epoch, steps) in &seen.steps_by_epoch {
        let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
        let word = if steps.len() == 1 { "step" } else { "steps" };
        text.push_str(&format!("  epoch {epoch} ran the {word} {}\n", steps.join(" ")));
    }
    let reports = effects.lines().filter(|line| line.starts_with(report)).count();
    let lines = if reports == 1 { "line" } else { "lines" };
    text.push_str(&format!(
        "  the report that was done before the crash: {reports} {lines}\n  steps that ran twice: {}\n",
        seen.effects_repeated
    ));
    let end = match (seen.effects_repeated, forget) {
        (_, true) => {
            "The process was gone, the job was not. Its handler forgot its place, so it began anew."
        }
        (0, false) => {
            "The process was gone, the job was not: its handler saves its place after each step with\n\
             context.progress, and went on from there."
        }
        (_, false) => {
            "The process was gone, the job was not. One step ran twice: the process died after the step\n\
             and before its handler had saved its place with context.progress. A system that is given\n\
             the execution_key with each step can tell that it is the same one."
        }
    };
    text.push_str(&format!("\n{end}\n{DIM}The same in your own terminal: windlass dev, press d, kill -9 it, windlass dev.{DIM:#}\n"));
    text
}

/// The steps of a job, by the epoch that did them.
fn steps_by_epoch(effects: &str, job: &str) -> Vec<(u64, Vec<u32>)> {
    let mut found: Vec<(u64, Vec<u32>)> = Vec::new();
    for line in effects.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [id, "step", step, "epoch", epoch] = words[..] else { continue };
        let (Ok(step), Ok(epoch)) = (step.parse(), epoch.parse()) else { continue };
        if id != job {
            continue;
        }
        match found.iter_mut().find(|(known, _)| *known == epoch) {
            Some((_, steps)) => steps.push(step),
            None => found.push((epoch, vec![step])),
        }
    }
    found
}

/// How many effects are there a second time, whoever did them. Nobody looks at the file before adding to it.
fn repeated(effects: &str) -> usize {
    let names: Vec<&str> =
        effects.lines().filter_map(|line| line.split(" epoch ").next()).collect();
    names.iter().enumerate().filter(|(at, name)| names[..*at].contains(name)).count()
}

fn ledger(folder: &Path) -> PathBuf {
    folder.join("effects.txt")
}

/// A `windlass dev` in a process of its own. It is killed when it is dropped.
struct Server {
    child: Child,
    api: Api,
    lines: mpsc::UnboundedReceiver<String>,
    reading: JoinHandle<()>,
}

impl Server {
    async fn start(folder: &Path, view: &View) -> Result<Self, Trouble> {
        let failed =
            |error: std::io::Error| Trouble::failed(format!("cannot start a server: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let store = format!("sqlite:{}", folder.join("windlass.db").display());
        let mut child = Command::new(program)
            .args([
                "dev",
                "--listen",
                "127.0.0.1:0",
                "--output",
                "table",
                "--store",
                &store,
                "--demo-ledger",
            ])
            .arg(ledger(folder))
            .env_remove("WINDLASS_CONFIG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let stdout = child.stdout.take().expect("it is piped");
        let mut read = BufReader::new(stdout).lines();
        let mut url = None;
        let reading = async {
            while let Ok(Some(line)) = read.next_line().await {
                url = line
                    .split_whitespace()
                    .find(|word| word.starts_with("http://"))
                    .map(str::to_owned);
                if url.is_some() {
                    break;
                }
            }
        };
        let _ = timeout(PATIENCE, reading).await;
        let Some(url) = url else {
            return Err(Trouble::failed("the server did not say where it is"));
        };
        let (send, lines) = mpsc::unbounded_channel();
        let view = view.clone();
        let reading = tokio::spawn(async move {
            while let Ok(Some(line)) = read.next_line().await {
                // What it says first is the same each time; then each line begins with the time or is about a start.
                if line.starts_with(|it: char| it.is_ascii_digit()) || line.starts_with('↻') {
                    view.say(&format!("  {DIM}│{DIM:#} {line}"));
                }
                let _ = send.send(line);
            }
        });
        Ok(Self { child, api: Api::in_development(&url)?, lines, reading })
    }

    fn process(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    async fn enqueue(&self, kind: &str, payload: &serde_json::Value) -> Result<String, Trouble> {
        let body = json!({"kind": kind, "queue": QUEUE, "payload": payload}).to_string();
        let made: Enqueued = self.api.post(&path(&["jobs"]), Some(body)).await?.read()?;
        Ok(made.job.job_id)
    }

    /// The job, once it is so.
    async fn until(&self, id: &str, is_so: impl Fn(&Stands) -> bool) -> Result<Stands, Trouble> {
        let until = Instant::now() + PATIENCE;
        loop {
            let document: Document = self.api.get(&path(&["jobs", id])).await?;
            let stands: Stands = document.read()?;
            if is_so(&stands) {
                return Ok(stands);
            }
            if Instant::now() > until {
                return Err(Trouble::failed(format!("{id} is still {}", stands.state)));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// What it says of what it found. A job that was over before the kill cannot be resumed.
    async fn resumed(&mut self, id: &str) -> Result<String, Trouble> {
        let events: Vec<Event> = self.api.page(&path(&["jobs", id, "events"])).await?.read()?;
        let has = |state: &str| events.iter().any(|event| event.to == state);
        if has("succeeded") && !has("interrupted") {
            return Err(Trouble::failed("the job was over before the server was killed")
                .then("Give it more to do: windlass demo crash --steps 8 --step-ms 1000"));
        }
        let found = async {
            while let Some(line) = self.lines.recv().await {
                if let Some(resumed) = line.strip_prefix("↻ ") {
                    return Some(resumed.to_owned());
                }
            }
            None
        };
        let found = timeout(PATIENCE, found).await.ok().flatten();
        found.ok_or_else(|| Trouble::failed("the server did not resume the job"))
    }

    /// Waits for the line that tells the end of a job, so that what is said next stands below it.
    async fn told_the_end(&mut self, id: &str) {
        let end = &id[id.len().saturating_sub(6)..];
        let told = async {
            while let Some(line) = self.lines.recv().await {
                if line.contains(end) && line.contains("✓ succeeded") {
                    return;
                }
            }
        };
        let _ = timeout(LATE_MAX, told).await;
    }

    /// Ends it at once, as a crash would: SIGKILL. What it had said is told before anything else is.
    async fn kill(mut self) -> Result<(), Trouble> {
        let killed = self.child.kill().await;
        let _ = timeout(PATIENCE, self.reading).await;
        killed.map_err(|error| Trouble::failed(format!("cannot kill it: {error}")))
    }
}
