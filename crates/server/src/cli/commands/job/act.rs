//! `windlass job cancel` and `windlass job retry`: jobs by name, or all that fit.

use std::time::Duration;

use clap::Args;
use windlass::wire::{CancelBody, JobDocument};
use windlass_kernel::time::as_ms;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{
        times,
        view::{View, state},
    },
    many::{self, WhichArgs},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    of: Of,
    /// Do not wait for the handler to clean up.
    #[arg(long)]
    force: bool,
    /// How long the handler may take to clean up; 30s, if nothing is said.
    #[arg(long, value_name = "DURATION", value_parser = times::parse)]
    grace: Option<Duration>,
    /// Why. It is kept in the history of the jobs.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Retry {
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    api: ApiArgs,
}

/// Which jobs.
#[derive(Args)]
struct Of {
    /// The jobs, job_…; or say which with --state, --queue, --kind, --tag or --code.
    ids: Vec<String>,
    /// All in one of these states, such as queued,running.
    #[arg(short, long, value_name = "STATE,…", help_heading = "All that fit")]
    state: Option<String>,
    #[command(flatten)]
    which: WhichArgs,
}

pub(super) async fn cancel(command: &Cancel, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let reason = command.reason.as_deref();
    if command.of.is_by_name("cancel")? {
        let (force, grace_ms) = (command.force, command.grace.map(as_ms));
        let body = CancelBody { reason: command.reason.clone(), force, grace_ms };
        let body = serde_json::to_string(&body).expect("a body is plain data");
        act(&api, &command.of.ids, "cancel", &body, view).await?;
    } else {
        if command.force || command.grace.is_some() {
            let what = "--force and --grace go with jobs that are named, not with all that fit";
            return Err(Trouble::usage(what));
        }
        let act = many::Act {
            act: "cancel",
            ask: "Cancel",
            done: "cancelled, or asked to stop",
            things: ("job", "jobs"),
            states: command.of.state.as_deref(),
            reason,
        };
        many::run(&api, &command.of.which, &act, view).await?;
    }
    api.close().await;
    Ok(())
}

pub(super) async fn retry(command: &Retry, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    if command.of.is_by_name("retry")? {
        act(&api, &command.of.ids, "retry", "{}", view).await?;
    } else {
        let act = many::Act {
            act: "retry",
            ask: "Retry",
            done: "retried",
            things: ("job", "jobs"),
            states: command.of.state.as_deref(),
            reason: None,
        };
        many::run(&api, &command.of.which, &act, view).await?;
    }
    api.close().await;
    Ok(())
}

impl Of {
    /// Are they named? Either that, or it is said which.
    fn is_by_name(&self, verb: &str) -> Result<bool, Trouble> {
        let is_filtered = self.state.is_some() || !self.which.is_empty();
        match (self.ids.is_empty(), is_filtered) {
            (false, false) => Ok(true),
            (true, true) => Ok(false),
            (false, true) => Err(Trouble::usage("name the jobs or say which all are, not both")),
            (true, false) => Err(Trouble::usage(format!("say which jobs to {verb}"))
                .then(format!("By name: windlass job {verb} JOB"))
                .then(format!("All that fit: windlass job {verb} --queue QUEUE --state STATE"))),
        }
    }
}

/// Does it to each, and stops at the first that refuses.
async fn act(
    api: &Api,
    ids: &[String],
    verb: &str,
    body: &str,
    view: &View,
) -> Result<(), Trouble> {
    for id in ids {
        let document = api.post(&path(&["jobs", id, verb]), Some(body.to_owned())).await?;
        let acted: JobDocument = document.read()?;
        view.document(&document, || {
            let asked = if acted.cancel_requested { ", asked to stop" } else { "" };
            let again = if acted.job_id.to_string() == *id {
                String::new()
            } else {
                format!(", runs {id} again")
            };
            format!("{}  {}{asked}{again}\n", acted.job_id, state(acted.state.as_str()))
        });
    }
    Ok(())
}
