//! `windlass queue pause`, `resume` and `drain`.

use clap::Args;
use serde_json::json;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::view::View,
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Turn {
    /// The name of the queue.
    queue: String,
    /// Why, for those who will ask.
    #[arg(short, long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Turn, verb: &str, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let body = json!({"reason": command.reason}).to_string();
    let queue = &command.queue;
    let document = api.post(&path(&["queues", queue, verb]), Some(body)).await?;
    let (what, next) = match verb {
        "pause" => ("paused: nothing of it is started", Some("resume")),
        "drain" => ("drained: nothing new is taken in", Some("resume")),
        _ => ("open again", None),
    };
    view.document(&document, || format!("{queue} is {what}.\n"));
    if let Some(next) = next {
        view.say(&format!("Let it go on with: windlass queue {next} {queue}"));
    }
    api.close().await;
    Ok(())
}
