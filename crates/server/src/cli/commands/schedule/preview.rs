//! `windlass schedule preview`: the next slots, by the clock of the schedule and by the clock of everybody.

use clap::Args;
use windlass::wire::SlotDocument;

use crate::cli::{
    api::{Api, ApiArgs, path, with_query},
    look::{
        table::{Room, Table},
        times::{TimeStyle, Times},
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Preview {
    /// The name of the schedule.
    name: String,
    /// How many slots.
    #[arg(short = 'n', long, default_value_t = 10)]
    limit: u32,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Preview, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let query = [("limit", Some(command.limit.to_string()))];
    let page = path(&["schedules", &command.name, "preview"]);
    let page = api.page(&with_query(&page, &query)).await?;
    let slots: Vec<SlotDocument> = page.read()?;
    view.list(&page, || table(&slots, view));
    api.close().await;
    Ok(())
}

fn table(slots: &[SlotDocument], view: &View) -> Table {
    let relative = Times::new(TimeStyle::Relative, view.times.now());
    let has_jitter = slots.iter().any(|slot| slot.fires_at != slot.at);
    let mut table = Table::new("It has no slot any more.")
        .column("ITS CLOCK", Room::Needed)
        .column("UTC", Room::Needed)
        .column("IN", Room::Spare(0));
    if has_jitter {
        table = table.column("FIRES AT", Room::Spare(1));
    }
    for slot in slots {
        let mut cells = vec![
            local(&slot.local).into(),
            slot.at.to_string().into(),
            relative.show(slot.at).trim_start_matches("in ").into(),
        ];
        if has_jitter {
            cells.push(slot.fires_at.to_string().into());
        }
        table.row(cells);
    }
    table
}

/// `2026-03-29T03:00:00+02:00[Europe/Berlin]` with air in it.
fn local(text: &str) -> String {
    text.replacen('T', " ", 1).replace('[', " ").replace(']', "")
}
