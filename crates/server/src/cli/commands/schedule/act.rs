//! `windlass schedule pause`, `resume`, `trigger` and `delete`.

use clap::Args;
use windlass::wire::{ReasonBody, ScheduleDocument, Triggered};

use super::slots;
use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{ask, view::View},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Pause {
    /// The name of the schedule.
    name: String,
    /// Why, for those who will ask.
    #[arg(short, long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Resume {
    /// The name of the schedule.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Trigger {
    /// The name of the schedule.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Delete {
    /// The name of the schedule.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn pause(command: &Pause, view: &View) -> Result<(), Trouble> {
    let body = ReasonBody { reason: command.reason.clone() };
    let body = serde_json::to_string(&body).expect("a body is plain data");
    turn(&command.api, &command.name, "pause", Some(body), view).await?;
    view.say(&format!("Let it go on with: windlass schedule resume {}", command.name));
    Ok(())
}

pub(super) async fn resume(command: &Resume, view: &View) -> Result<(), Trouble> {
    turn(&command.api, &command.name, "resume", None, view).await
}

async fn turn(
    args: &ApiArgs,
    name: &str,
    verb: &str,
    body: Option<String>,
    view: &View,
) -> Result<(), Trouble> {
    let api = Api::open(args).await?;
    let document = api.post(&path(&["schedules", name, verb]), body).await?;
    let schedule: ScheduleDocument = document.read()?;
    let next = view.times.show_option(schedule.next_at);
    view.document(&document, || match schedule.pause {
        Some(_) => format!("{name} is paused: no slot of it is fired.\n"),
        None => format!("{name} goes on. Its next slot: {next}\n"),
    });
    api.close().await;
    Ok(())
}

pub(super) async fn trigger(command: &Trigger, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.post(&path(&["schedules", &command.name, "trigger"]), None).await?;
    let made: Triggered = document.read()?;
    view.document(&document, || format!("{}\n", made.job_id));
    view.say(&format!("Look at it: windlass job show {}", made.job_id));
    api.close().await;
    Ok(())
}

pub(super) async fn delete(command: &Delete, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let path = path(&["schedules", &command.name]);
    let schedule: ScheduleDocument = api.get(&path).await?.read()?;
    let question = format!("End schedule {} ({})?", schedule.name, slots(&schedule));
    ask::confirm(view, &question)?;
    let document = api.call(axum::http::Method::DELETE, &path, None).await?;
    view.document(&document, || format!("{} is over. Its jobs stay.\n", schedule.name));
    api.close().await;
    Ok(())
}
