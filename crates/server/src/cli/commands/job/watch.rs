//! `windlass job watch`: what happens to jobs, as it happens, until they are at their ends.
//!
//! It asks for the events of those jobs alone, and seldom, so that it costs next to nothing however much the server
//! does for others. A server that goes away is waited for a while: it may be starting again.

use std::time::{Duration, Instant};

use clap::Args;
use unicode_width::UnicodeWidthStr as _;
use windlass::wire::JobDocument;
use windlass_kernel::State;

use super::seen::{Event, failure, sentence, short, step};
use crate::cli::{
    Output,
    api::{Api, ApiArgs, path, with_query},
    exit,
    look::{terminal::print, times, view::View},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Watch {
    /// The jobs, job_…
    #[arg(required = true)]
    ids: Vec<String>,
    /// Give up after this long, such as 30s: then it ends with 5.
    #[arg(long, value_name = "DURATION", value_parser = times::parse)]
    timeout: Option<Duration>,
    #[command(flatten)]
    api: ApiArgs,
}

/// A job that is followed.
pub(super) struct Followed {
    pub(super) id: String,
    /// The number of the last event that was told.
    seen: u64,
    /// How it ended, if it has.
    pub(super) end: Option<End>,
    /// When to ask again, and how long to wait after that.
    ask_at: Instant,
    pause: Duration,
}

/// How a job ended.
pub(super) struct End {
    state: State,
    /// Why, if it did not go well.
    why: String,
}

/// So many events that were there before are told.
const BEFORE: u64 = 10;
/// How long to wait after something happened, and while nothing does.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// For each job that is followed: so the number of jobs does not change what it costs.
const PAUSE_EACH: Duration = Duration::from_millis(20);
/// How long a server may be away.
const AWAY_MAX: Duration = Duration::from_secs(60);

pub(super) async fn run(command: &Watch, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let mut jobs = Vec::new();
    for id in &command.ids {
        let job: JobDocument = api.get(&path(&["jobs", id])).await?.read()?;
        if !job.state.is_end() {
            let next = format!("Look at it as it stands: windlass job show {id}");
            needs_a_server(&api, &next)?;
        }
        jobs.push(Followed::new(job.job_id.to_string(), job.version.saturating_sub(BEFORE)));
    }
    let width = if jobs.len() > 1 { jobs[0].id.len() } else { 0 };
    let told = |id: &str, event: &Event, raw: &str| match view.output {
        Output::Table if width > 0 => print(&format!("{id}  {}\n", line(event, view))),
        Output::Table => print(&(line(event, view) + "\n")),
        Output::Jsonl => print(&format!("{raw}\n")),
        Output::Json => {}
    };
    follow(&api, &mut jobs, command.timeout, view, told).await?;
    if matches!(view.output, Output::Json) {
        let mut documents = Vec::new();
        for job in &jobs {
            documents.push(api.get(&path(&["jobs", &job.id])).await?);
        }
        view.documents(&documents);
    }
    api.close().await;
    verdict(&jobs)
}

/// Nothing happens in a file that nobody serves, and a command that has it open would keep others out.
pub(super) fn needs_a_server(api: &Api, next: &str) -> Result<(), Trouble> {
    if !api.is_alone() {
        return Ok(());
    }
    Err(Trouble::unreachable("nobody serves this database, so nothing happens to its jobs")
        .then("Start a server: windlass dev, or windlass serve")
        .then(next))
}

/// Fine, if all succeeded.
pub(super) fn verdict(jobs: &[Followed]) -> Result<(), Trouble> {
    let failed: Vec<(&str, &End)> = jobs
        .iter()
        .filter_map(|job| Some((job.id.as_str(), job.end.as_ref()?)))
        .filter(|(_, end)| end.state != State::Succeeded)
        .collect();
    let Some((first, _)) = failed.first() else { return Ok(()) };
    let shown = failed.iter().take(10);
    let lines: Vec<String> = shown.map(|(id, end)| format!("{id} {}", end.sentence())).collect();
    let mut what = lines.join("\n");
    if failed.len() > 10 {
        what.push_str(&format!("\nand {} more did not succeed", failed.len() - 10));
    }
    Err(Trouble::new(exit::AWAITED_FAILED, what)
        .then(format!("Look at it: windlass job show {first}")))
}

impl End {
    fn sentence(&self) -> String {
        let state = match self.state {
            State::Failed => "failed for good",
            State::Partial => "is done in part only",
            State::Cancelled => "was cancelled",
            other => other.as_str(),
        };
        if self.why.is_empty() { state.to_owned() } else { format!("{state}: {}", self.why) }
    }
}

impl Followed {
    /// Follows a job from the event after this one.
    pub(super) fn new(id: String, seen: u64) -> Self {
        Self { id, seen, end: None, ask_at: Instant::now(), pause: PAUSE_MIN }
    }

    /// Asks what happened, and tells it.
    async fn ask(
        &mut self,
        api: &Api,
        told: &impl Fn(&str, &Event, &str),
    ) -> Result<bool, Trouble> {
        let query = [("after", Some(self.seen.to_string())), ("limit", Some("1000".to_owned()))];
        let page = api.page(&with_query(&path(&["jobs", &self.id, "events"]), &query)).await?;
        let events: Vec<Event> = page.read()?;
        for (event, raw) in events.iter().zip(&page.items) {
            told(&self.id, event, raw.get());
            self.seen = event.number;
            if event.to.is_end() {
                let why = failure(event).as_ref().map(sentence);
                let why = why.or_else(|| Some(event.fact["reason"].as_str()?.to_owned()));
                self.end = Some(End { state: event.to, why: why.unwrap_or_default() });
            }
        }
        Ok(!events.is_empty())
    }
}

/// Tells what happens to the jobs until all are at their ends.
pub(super) async fn follow(
    api: &Api,
    jobs: &mut [Followed],
    timeout: Option<Duration>,
    view: &View,
    told: impl Fn(&str, &Event, &str),
) -> Result<(), Trouble> {
    let began = Instant::now();
    let least = PAUSE_MIN.max(PAUSE_EACH * u32::try_from(jobs.len()).unwrap_or(u32::MAX));
    let mut away_since: Option<Instant> = None;
    loop {
        let open = jobs.iter_mut().filter(|job| job.end.is_none());
        let Some(job) = open.min_by_key(|job| job.ask_at) else { return Ok(()) };
        let ask_at = timeout.map_or(job.ask_at, |timeout| job.ask_at.min(began + timeout));
        tokio::time::sleep_until(ask_at.into()).await;
        if timeout.is_some_and(|timeout| began.elapsed() >= timeout) {
            return Err(gave_up(jobs, began.elapsed()));
        }
        let has_news = match job.ask(api, &told).await {
            Ok(has_news) => has_news,
            Err(trouble) if trouble.exit == exit::UNREACHABLE && api.is_server() => {
                let since = *away_since.get_or_insert_with(|| {
                    view.say(&format!("{} does not answer; waiting for it.", api.place()));
                    Instant::now()
                });
                if since.elapsed() > AWAY_MAX {
                    return Err(trouble);
                }
                job.ask_at = Instant::now() + PAUSE_MAX;
                continue;
            }
            Err(trouble) => return Err(trouble),
        };
        if away_since.take().is_some() {
            view.say(&format!("{} answers again.", api.place()));
        }
        job.pause = if has_news { least } else { (job.pause * 3 / 2).min(PAUSE_MAX.max(least)) };
        job.ask_at = Instant::now() + job.pause;
    }
}

fn gave_up(jobs: &[Followed], after: Duration) -> Trouble {
    let open: Vec<&str> =
        jobs.iter().filter(|job| job.end.is_none()).map(|job| job.id.as_str()).collect();
    let what = match open.as_slice() {
        [one] => format!("{one} is not at its end after {}", times::exact(after)),
        more => {
            let (count, after) = (more.len(), times::exact(after));
            format!("{count} of {} jobs are not at their ends after {after}", jobs.len())
        }
    };
    let first = open.first().copied().unwrap_or_default();
    Trouble::unreachable(what).then(format!("Ask why: windlass job why {first}"))
}

/// Where there is less room than this, a line says when, what became of it, and what else there is to know.
const NARROW: usize = 90;

/// An event as a line.
pub(super) fn line(event: &Event, view: &View) -> String {
    const STEP: usize = 30;
    const CAUSE: usize = 19;
    let (step, style) = step(event);
    let blank = STEP.saturating_sub(step.width());
    let time = view.times.live(event.at);
    let (cause, actor) = (event.cause.as_str(), &event.actor);
    let short = short(event, view.times);
    let line = match view.width < NARROW {
        true => format!("{time}  {style}{step}{style:#}"),
        false => {
            format!("{time}  {style}{step}{style:#}{:blank$}  {cause:<CAUSE$}  {actor}", "")
        }
    };
    if short.is_empty() { line } else { format!("{line}  {short}") }
}
