//! `windlass job add`: enqueue a job.

use std::{fs, io::Read as _, time::Duration};

use clap::Args;
use serde_json::value::RawValue;
use windlass::wire::{EnqueuedDocument, JobDocument, NewJobBody};
use windlass_kernel::{
    IdempotencyKey, Kind, LimitKey, Queue, RetryPolicy, Tag, TaskId, TraceId, UniqueKey,
    job::Priority,
};

use super::{
    seen::Event,
    watch::{self, Followed},
};
use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{
        times,
        view::{View, state},
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Add {
    /// Which handler it needs.
    #[arg(default_value = "default")]
    kind: Kind,
    /// What the handler gets: JSON, @FILE, or - for standard input.
    #[arg(default_value = "null")]
    payload: String,
    /// Where it waits.
    #[arg(short, long, default_value = "default")]
    queue: Queue,
    /// How urgent it is, from -1000 to 1000: smaller is sooner.
    #[arg(short, long, allow_hyphen_values = true)]
    priority: Option<i16>,
    /// When it becomes due: 2026-02-25T12:00:00Z, or 10m from now.
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// How long one execution may take, such as 30s.
    #[arg(long, value_name = "DURATION", value_parser = times::parse)]
    timeout: Option<Duration>,
    /// How many times it is tried again.
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// How long it waits before its first retry; then twice as long each time.
    #[arg(long, value_name = "DURATION", value_parser = times::parse)]
    backoff: Option<Duration>,
    /// The name of this request: said again, it creates nothing.
    #[arg(long, value_name = "KEY")]
    key: Option<IdempotencyKey>,
    /// What it is a run of.
    #[arg(long, value_name = "ID")]
    task_id: Option<TaskId>,
    /// What it has in common with others, for limits and turns.
    #[arg(long, value_name = "KEY")]
    limit_key: Option<LimitKey>,
    /// What no other job that is not at its end may have.
    #[arg(long, value_name = "KEY")]
    unique_key: Option<UniqueKey>,
    /// A label; may be said several times.
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<Tag>,
    /// The trace it belongs to.
    #[arg(long, value_name = "ID")]
    trace_id: Option<TraceId>,
    /// Wait until it is at its end, and print its result; give up after this long, if it is said. It ends with 10 if the
    /// job does not succeed.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = times::parse)]
    wait: Option<Option<Duration>>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Add, view: &View) -> Result<(), Trouble> {
    let body = body(command, view)?;
    let api = Api::open(&command.api).await?;
    if command.wait.is_some() {
        watch::needs_a_server(&api, "Or leave out --wait, to enqueue it all the same.")?;
    }
    let document = api.post(&path(&["jobs"]), Some(body)).await?;
    let made: EnqueuedDocument = document.read()?;
    let what = if made.idempotent_hit { "was there already" } else { "is enqueued" };
    let id = &made.job.job_id.to_string();
    if let Some(timeout) = command.wait {
        view.say(&format!("{id} {what}."));
        let end = wait(&api, id, timeout, view).await;
        api.close().await;
        return end;
    }
    view.document(&document, || format!("{id}\n"));
    view.say(&format!(
        "It {what}: {}. Look at it: windlass job show {id}",
        state(made.job.state.as_str())
    ));
    api.close().await;
    Ok(())
}

/// Follows the job, and prints what came out of it.
async fn wait(api: &Api, id: &str, timeout: Option<Duration>, view: &View) -> Result<(), Trouble> {
    let mut jobs = [Followed::new(id.to_owned(), 0)];
    let told = |_: &str, event: &Event, _: &str| view.say(&watch::line(event, view));
    watch::follow(api, &mut jobs, timeout, view, told).await?;
    let document = api.get(&path(&["jobs", id])).await?;
    let job: JobDocument = document.read()?;
    view.document(&document, || {
        job.result.map_or_else(String::new, |result| format!("{}\n", result.get()))
    });
    watch::verdict(&jobs)
}

/// The request, with the payload as it was given.
fn body(command: &Add, view: &View) -> Result<String, Trouble> {
    let at = command.at.as_deref().map(|at| times::parse_time(at, view.times.now()));
    let body = NewJobBody {
        kind: Some(command.kind.clone()),
        payload: Some(payload(&command.payload)?),
        queue: Some(command.queue.clone()),
        priority: command.priority.map(Priority),
        scheduled_at: at.transpose().map_err(Trouble::usage)?,
        timeout: command.timeout,
        max_retries: command.max_retries,
        retry: command.backoff.map(|base| RetryPolicy { base, ..RetryPolicy::default() }),
        idempotency_key: command.key.clone(),
        task_id: command.task_id.clone(),
        limit_key: command.limit_key.clone(),
        unique_key: command.unique_key.clone(),
        tags: command.tags.clone(),
        trace_id: command.trace_id.clone(),
        ..NewJobBody::default()
    };
    Ok(serde_json::to_string(&body).expect("a body is plain data"))
}

/// The payload, byte for byte.
pub(crate) fn payload(given: &str) -> Result<Box<RawValue>, Trouble> {
    let unread = |what: &str, error: std::io::Error| {
        Trouble::not_found(format!("cannot read the payload from {what}: {error}"))
    };
    let text = match given.strip_prefix('@') {
        Some(file) => fs::read_to_string(file).map_err(|error| unread(file, error))?,
        None if given == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| unread("standard input", error))?;
            text
        }
        None => given.to_owned(),
    };
    RawValue::from_string(text.trim().to_owned()).map_err(|why| {
        Trouble::usage(format!("the payload is no JSON: {why}")).then(
            "Put it in single quotes, and text in double ones: '{\"to\": \"ann\"}' or '\"text\"'.",
        )
    })
}
