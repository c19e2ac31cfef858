//! `windlass schedule history`: what became of its slots.

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};
use windlass_kernel::Timestamp;

use crate::cli::{
    api::{Api, ApiArgs, path, with_query},
    table::{Room, Table},
    trouble::Trouble,
    view::View,
};

#[derive(Args)]
pub(crate) struct History {
    /// The name of the schedule.
    name: String,
    /// How many at the most.
    #[arg(short = 'n', long, default_value_t = 20)]
    limit: u32,
    /// Where to go on: the `next` of the list before.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Deserialize)]
struct Entry {
    at: Timestamp,
    payload: Noted,
}

#[derive(Deserialize)]
struct Noted {
    what: String,
    actor: String,
    job_id: Option<String>,
    #[serde(default)]
    detail: Map<String, Value>,
}

pub(super) async fn run(command: &History, view: &View) -> Result<(), Trouble> {
    let query = [("limit", Some(command.limit.to_string())), ("cursor", command.cursor.clone())];
    let api = Api::open(&command.api).await?;
    let page = path(&["schedules", &command.name, "history"]);
    let page = api.page(&with_query(&page, &query)).await?;
    let entries: Vec<Entry> = page.read()?;
    view.list(&page, || table(&entries, view));
    if let Some(next) = &page.next {
        view.say(&format!("There may be more: --cursor {next}"));
    }
    api.close().await;
    Ok(())
}

fn table(entries: &[Entry], view: &View) -> Table {
    let mut table = Table::new("Nothing was noted about a schedule of that name.")
        .column("WHEN", Room::Needed)
        .column("WHAT", Room::Needed)
        .column("JOB", Room::Spare(1))
        .column("BY", Room::Spare(2))
        .column("DETAIL", Room::Spare(0));
    for entry in entries {
        let noted = &entry.payload;
        table.row([
            view.times.show(entry.at).into(),
            noted.what.as_str().into(),
            noted.job_id.as_deref().unwrap_or("-").into(),
            noted.actor.as_str().into(),
            detail(&noted.detail).into(),
        ]);
    }
    table
}

/// `slot 2026-…, reason missed`
fn detail(detail: &Map<String, Value>) -> String {
    let part = |(name, value): (&String, &Value)| match value {
        Value::Bool(true) => name.clone(),
        Value::String(text) => format!("{name} {text}"),
        other => format!("{name} {other}"),
    };
    let parts: Vec<String> = detail.iter().map(part).collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
}
