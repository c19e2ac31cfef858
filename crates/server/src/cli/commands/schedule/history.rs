//! `windlass schedule history`: what became of its slots.

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value};
use windlass_kernel::Timestamp;

use crate::cli::{
    api::{Api, ApiArgs, path, with_query},
    look::{
        table::{Room, Table},
        view::View,
    },
    trouble::Trouble,
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

/// Where there is less room than this, details are cut to less.
const NARROW: usize = 80;

fn table(entries: &[Entry], view: &View) -> Table {
    let mut table = Table::new("Nothing was noted about a schedule of that name.")
        .column("WHEN", Room::Needed)
        .column("WHAT", Room::Needed)
        .column("JOB", Room::Spare(1))
        .column("BY", Room::Spare(2))
        .column("DETAIL", Room::Shorten(if view.width < NARROW { 20 } else { 32 }));
    for entry in entries {
        let noted = &entry.payload;
        table.row([
            view.times.show(entry.at).into(),
            noted.what.as_str().into(),
            noted.job_id.as_deref().unwrap_or("-").into(),
            noted.actor.as_str().into(),
            noted.sentence(view).into(),
        ]);
    }
    table
}

impl Noted {
    /// What else is to be said of it, in words: `slot 2126-…, by hand`.
    fn sentence(&self, view: &View) -> String {
        let parts: Vec<String> =
            self.detail.iter().filter_map(|(name, value)| self.part(name, value, view)).collect();
        if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
    }

    /// One part of a detail. A field that is new here is told as it is.
    fn part(&self, name: &str, value: &Value, view: &View) -> Option<String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Array(all) => {
                all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" and ")
            }
            other => other.to_string(),
        };
        let at = || text.parse().map_or_else(|_| text.clone(), |at: Timestamp| view.times.show(at));
        Some(match (name, value) {
            (_, Value::Null) => return None,
            ("trigger", _) => "by hand".to_owned(),
            ("backfill", _) => "filled in".to_owned(),
            ("slot", _) => format!("slot {}", at()),
            ("next_at", _) => format!("next slot {}", at()),
            ("first" | "from", _) => format!("from {}", at()),
            ("last" | "to", _) => format!("to {}", at()),
            ("slots" | "count", _) if text == "1" => "1 slot".to_owned(),
            ("slots" | "count", _) => format!("{text} slots"),
            ("fields", _) => format!("another {text}"),
            ("code" | "why", _) => text,
            ("reason", _) if self.what == "skipped" => skipped_for(&text).to_owned(),
            ("reason", _) => format!("\"{text}\""),
            _ => format!("{name} {text}"),
        })
    }
}

/// Why a slot was skipped.
fn skipped_for(reason: &str) -> &str {
    match reason {
        "fired_before" => "its job was there already",
        "refused" => "its job was refused",
        "overlap" => "the last job was not at its end",
        "bound_reached" => "more were missed than are made up for",
        "missed" => "nobody was there in time",
        "paused" => "it was paused",
        "changed" => "the schedule was changed",
        other => other,
    }
}
