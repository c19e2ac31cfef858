//! `windlass job add`: enqueue a job.

use std::{fs, io::Read as _, time::Duration};

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    seen::Event,
    watch::{self, Followed},
};
use crate::cli::{
    api::{Api, ApiArgs, path},
    times,
    trouble::Trouble,
    view::{View, state},
};

#[derive(Args)]
pub(crate) struct Add {
    /// Which handler it needs.
    #[arg(default_value = "default")]
    kind: String,
    /// What the handler gets: JSON, @FILE, or - for standard input.
    #[arg(default_value = "null")]
    payload: String,
    /// Where it waits.
    #[arg(short, long, default_value = "default")]
    queue: String,
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
    key: Option<String>,
    /// What it is a run of.
    #[arg(long, value_name = "ID")]
    task_id: Option<String>,
    /// What it has in common with others, for limits and turns.
    #[arg(long, value_name = "KEY")]
    limit_key: Option<String>,
    /// What no other job that is not at its end may have.
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// A label; may be said several times.
    #[arg(short, long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The trace it belongs to.
    #[arg(long, value_name = "ID")]
    trace_id: Option<String>,
    /// Wait until it is at its end, and print its result; give up after this long, if it is said. It ends with 10 if the
    /// job does not succeed.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true, value_parser = times::parse)]
    wait: Option<Option<Duration>>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Deserialize)]
struct Enqueued {
    idempotent_hit: bool,
    job: Made,
}

#[derive(Deserialize)]
struct Made {
    job_id: String,
    state: String,
}

pub(super) async fn run(command: &Add, view: &View) -> Result<(), Trouble> {
    let body = body(command, view)?;
    let api = Api::open(&command.api).await?;
    if command.wait.is_some() {
        watch::needs_a_server(&api, "Or leave out --wait, to enqueue it all the same.")?;
    }
    let document = api.post(&path(&["jobs"]), Some(body)).await?;
    let made: Enqueued = document.read()?;
    let what = if made.idempotent_hit { "was there already" } else { "is enqueued" };
    let id = &made.job.job_id;
    if let Some(timeout) = command.wait {
        view.say(&format!("{id} {what}."));
        let end = wait(&api, id, timeout, view).await;
        api.close().await;
        return end;
    }
    view.document(&document, || format!("{id}\n"));
    view.say(&format!("It {what}: {}. Look at it: windlass job show {id}", state(&made.job.state)));
    api.close().await;
    Ok(())
}

/// What came out of a job, byte for byte.
#[derive(Deserialize)]
struct Came {
    result: Option<Box<RawValue>>,
}

/// Follows the job, and prints what came out of it.
async fn wait(api: &Api, id: &str, timeout: Option<Duration>, view: &View) -> Result<(), Trouble> {
    let mut jobs = [Followed::new(id.to_owned(), 0)];
    let told = |_: &str, event: &Event, _: &str| view.say(&watch::line(event, view));
    watch::follow(api, &mut jobs, timeout, view, told).await?;
    let document = api.get(&path(&["jobs", id])).await?;
    let came: Came = document.read()?;
    view.document(&document, || {
        came.result.map_or_else(String::new, |result| format!("{}\n", result.get()))
    });
    watch::verdict(&jobs)
}

/// The request, with the payload as it was given.
fn body(command: &Add, view: &View) -> Result<String, Trouble> {
    let payload = payload(&command.payload)?;
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    };
    let at = command.at.as_deref().map(|at| times::parse_time(at, view.times.now()));
    let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    set("kind", json!(command.kind));
    set("queue", json!(command.queue));
    set("priority", json!(command.priority));
    set("scheduled_at", json!(at.transpose().map_err(Trouble::usage)?));
    set("timeout_ms", json!(command.timeout.map(ms)));
    set("max_retries", json!(command.max_retries));
    set("retry", json!(command.backoff.map(|base| json!({"base_ms": ms(base)}))));
    set("idempotency_key", json!(command.key));
    set("task_id", json!(command.task_id));
    set("limit_key", json!(command.limit_key));
    set("unique_key", json!(command.unique_key));
    set("tags", json!(command.tags));
    set("trace_id", json!(command.trace_id));
    let text = Value::Object(fields).to_string();
    let open = text.strip_suffix('}').expect("an object ends so");
    Ok(format!("{open},\"payload\":{}}}", payload.get()))
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
