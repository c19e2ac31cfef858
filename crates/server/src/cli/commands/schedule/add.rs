//! `windlass schedule add`: create a schedule, or change it.

use std::time::Duration;

use clap::{ArgGroup, Args, ValueEnum};
use windlass::wire::{CatchUpAllBody, CatchUpBody, NewJobBody, ScheduleBody};
use windlass_kernel::{Kind, Queue, ScheduleName, Tag, job::Priority};

use super::show;
use crate::cli::{
    api::{Api, ApiArgs, path},
    commands::job,
    look::{times, view::View},
    trouble::Trouble,
};

#[derive(Args)]
#[command(group = ArgGroup::new("when").required(true).args(["cron", "every", "at"]))]
pub(crate) struct Add {
    /// Its name. The same again changes the one that is there.
    name: ScheduleName,
    /// The kind of its jobs.
    #[arg(default_value = "default")]
    kind: Kind,
    /// What their handler gets: JSON, @FILE, or - for standard input.
    #[arg(default_value = "null")]
    payload: String,
    /// Times of a wall clock, such as '30 2 * * *', or @hourly; six fields have seconds first.
    #[arg(long, value_name = "EXPRESSION", help_heading = "When")]
    cron: Option<String>,
    /// Where the clock hangs, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE", requires = "cron", help_heading = "When")]
    zone: Option<String>,
    /// How far its slots lie apart, such as 15m.
    #[arg(long, value_name = "DURATION", value_parser = times::parse, help_heading = "When")]
    every: Option<Duration>,
    /// The first slot of an interval: a time, or 10m from now [default: now].
    #[arg(long, value_name = "TIME", requires = "every", help_heading = "When")]
    anchor: Option<String>,
    /// One slot: 2026-02-25T12:00:00Z, or 10m from now.
    #[arg(long, value_name = "TIME", help_heading = "When")]
    at: Option<String>,
    /// No slot before this time.
    #[arg(long, value_name = "TIME", help_heading = "When")]
    from: Option<String>,
    /// No slot at this time or later.
    #[arg(long, value_name = "TIME", help_heading = "When")]
    until: Option<String>,
    /// By how much a slot may be fired later, so that not all come at once.
    #[arg(long, value_name = "DURATION", value_parser = times::parse, help_heading = "When")]
    jitter: Option<Duration>,
    /// What becomes of slots that were missed: skip, one, or all:N for N at the most.
    #[arg(long, value_name = "POLICY", value_parser = catch_up, help_heading = "When")]
    catch_up: Option<CatchUpBody>,
    /// What a slot does while the last job is not at its end.
    #[arg(long, value_enum, help_heading = "When")]
    overlap: Option<Overlap>,
    /// Where its jobs wait.
    #[arg(short, long)]
    queue: Option<Queue>,
    /// How urgent they are, from -1000 to 1000: smaller is sooner.
    #[arg(short, long, allow_hyphen_values = true)]
    priority: Option<i16>,
    /// How long one execution may take, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = times::parse)]
    timeout: Option<Duration>,
    /// How many times a job is tried again.
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// A label of its jobs; may be said several times.
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<Tag>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What a slot does while the last job is not at its end.
#[derive(Clone, Copy, ValueEnum)]
enum Overlap {
    /// It is fired all the same.
    Allow,
    /// It is skipped.
    Skip,
    /// It waits.
    Queue,
}

pub(super) async fn run(command: &Add, view: &View) -> Result<(), Trouble> {
    let body = body(command, view)?;
    let api = Api::open(&command.api).await?;
    let document = api.post(&path(&["schedules"]), Some(body)).await?;
    show::show(&document, view)?;
    view.say(&format!("See its next slots: windlass schedule preview {}", command.name));
    if !api.is_server() {
        view.say("Its slots are fired while a server runs: windlass serve, or windlass dev.");
    }
    api.close().await;
    Ok(())
}

/// The request, with the payload as it was given.
fn body(command: &Add, view: &View) -> Result<String, Trouble> {
    let time = |text: &Option<String>| {
        let at = text.as_deref().map(|text| times::parse_time(text, view.times.now()));
        at.transpose().map_err(Trouble::usage)
    };
    let job = NewJobBody {
        kind: Some(command.kind.clone()),
        payload: Some(job::payload(&command.payload)?),
        queue: command.queue.clone(),
        priority: command.priority.map(Priority),
        timeout: command.timeout,
        max_retries: command.max_retries,
        tags: command.tags.clone(),
        ..NewJobBody::default()
    };
    let body = ScheduleBody {
        name: command.name.clone(),
        cron: command.cron.clone(),
        zone: command.zone.clone(),
        every: command.every,
        anchor: time(&command.anchor)?,
        at: time(&command.at)?,
        jitter: command.jitter,
        catch_up: command.catch_up,
        overlap: command.overlap.map(Into::into),
        start_at: time(&command.from)?,
        end_at: time(&command.until)?,
        job,
    };
    Ok(serde_json::to_string(&body).expect("a body is plain data"))
}

impl From<Overlap> for windlass::Overlap {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Allow => Self::Allow,
            Overlap::Skip => Self::Skip,
            Overlap::Queue => Self::Queue,
        }
    }
}

fn catch_up(text: &str) -> Result<CatchUpBody, String> {
    let max = text.strip_prefix("all:").and_then(|max| max.parse::<u32>().ok());
    match (text, max) {
        ("skip", _) => Ok(CatchUpBody::Skip),
        ("one", _) => Ok(CatchUpBody::One),
        (_, Some(max)) => Ok(CatchUpBody::All(CatchUpAllBody { max })),
        _ => Err("it is skip, one, or all:N such as all:10".to_owned()),
    }
}
