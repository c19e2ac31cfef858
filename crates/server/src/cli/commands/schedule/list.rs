//! `windlass schedule list`: schedules by name.

use clap::Args;
use windlass::wire::ScheduleDocument;

use super::{slots, status};
use crate::cli::{
    api::{Api, ApiArgs, path, with_query},
    look::{
        table::{Room, Table},
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct List {
    /// How many at the most.
    #[arg(short = 'n', long, default_value_t = 100)]
    limit: u32,
    /// Where to go on: the `next` of the list before.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &List, view: &View) -> Result<(), Trouble> {
    let query = [("limit", Some(command.limit.to_string())), ("cursor", command.cursor.clone())];
    let api = Api::open(&command.api).await?;
    let page = api.page(&with_query(&path(&["schedules"]), &query)).await?;
    let schedules: Vec<ScheduleDocument> = page.read()?;
    view.list(&page, || table(&schedules, view));
    if let Some(next) = &page.next {
        view.say(&format!("There are more: --cursor {next}"));
    }
    api.close().await;
    Ok(())
}

fn table(schedules: &[ScheduleDocument], view: &View) -> Table {
    let empty = "There is no schedule yet. Make one: windlass schedule add nightly report --cron '30 2 * * *'";
    let mut table = Table::new(empty)
        .column("SCHEDULE", Room::Shorten(8))
        .column("STATUS", Room::Needed)
        .column("SLOTS", Room::Shorten(12))
        .column("NEXT", Room::Needed)
        .column("KIND", Room::Spare(1))
        .column("QUEUE", Room::Spare(2))
        .column("LAST", Room::Spare(0));
    for schedule in schedules {
        table.row([
            schedule.name.as_str().into(),
            status(schedule).into(),
            slots(schedule).into(),
            view.times.show_option(schedule.next_at).into(),
            schedule.kind.as_str().into(),
            schedule.queue.as_str().into(),
            view.times.show_option(schedule.last_slot).into(),
        ]);
    }
    table
}
