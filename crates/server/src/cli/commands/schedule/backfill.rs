//! `windlass schedule backfill`: make the jobs of past slots that have none.

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::json;
use windlass_kernel::Timestamp;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{ask, output, progress, times, view::View},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Backfill {
    /// The name of the schedule.
    name: String,
    /// From this slot on: a time, or how long ago, such as 2d.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: String,
    /// Up to the last slot before this: a time, or how long ago, such as 2h [default: now].
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What one call did, and what all of them did together.
#[derive(Default, Deserialize, Serialize)]
struct Backfilled {
    made: Vec<String>,
    known: Vec<String>,
    goes_on_from: Option<Timestamp>,
}

pub(super) async fn run(command: &Backfill, view: &View) -> Result<(), Trouble> {
    let now = view.times.now();
    let time = |text: &str| times::parse_past(text, now).map_err(Trouble::usage);
    let from = time(&command.from)?;
    let to = command.to.as_deref().map_or(Ok(now), time)?;
    let api = Api::open(&command.api).await?;
    let name = &command.name;
    ask::confirm(view, &format!("Make the missing jobs of {name} from {from} to {to}?"))?;
    let (path, bar) = (path(&["schedules", name, "backfill"]), progress::bar("{pos} jobs made"));
    let (mut done, mut next) = (Backfilled::default(), Some(from));
    // Each call makes a bounded number of jobs, and says where to go on.
    while let Some(from) = next {
        let body = json!({"from": from, "to": to}).to_string();
        let step: Backfilled = api.post(&path, Some(body)).await?.read()?;
        done.made.extend(step.made);
        done.known.extend(step.known);
        bar.set_position(done.made.len() as u64);
        next = step.goes_on_from;
    }
    drop(bar);
    let text: String = done.made.iter().map(|job| format!("{job}\n")).collect();
    output::show(view.output, &text, &done);
    let (made, known) = (done.made.len(), done.known.len());
    view.say(&format!("{made} jobs were made. {known} slots had their jobs already."));
    api.close().await;
    Ok(())
}
