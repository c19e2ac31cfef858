//! `windlass queue list`: every queue on a line.

use std::time::Duration;

use clap::Args;
use windlass::wire::QueueDocument;

use super::{count, status};
use crate::cli::{
    api::{Api, ApiArgs},
    look::{
        table::{Room, Table},
        times::rough,
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &List, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let page = api.pages(&["queues"], &[], u32::MAX, None).await?;
    let queues: Vec<QueueDocument> = page.read()?;
    view.list(&page, || table(&queues, view));
    let age = page.counted_at.map_or(Duration::ZERO, |at| view.times.now().since(at));
    if age >= OLD {
        view.say(&format!("Jobs were counted {} ago.", rough(age)));
    }
    api.close().await;
    Ok(())
}

/// From this age on it is told when jobs were counted.
const OLD: Duration = Duration::from_secs(2);

fn table(queues: &[QueueDocument], view: &View) -> Table {
    let empty =
        "There is no queue yet. The first job makes one: windlass job add send_mail --queue mail";
    let mut table = Table::new(empty)
        .column("QUEUE", Room::Shorten(8))
        .column("STATUS", Room::Needed)
        .number("READY", Room::Needed)
        .number("RUNNING", Room::Needed)
        .number("WAITING", Room::Spare(3))
        .number("RETRY", Room::Spare(1))
        .number("SCHEDULED", Room::Spare(4))
        .number("FAILED", Room::Spare(0))
        .number("DONE", Room::Spare(5))
        .number("CANCELLED", Room::Spare(6))
        .column("OLDEST READY", Room::Spare(2));
    for queue in queues {
        let count = |states: &[&str]| count(queue, states).to_string().into();
        table.row([
            queue.queue.as_str().into(),
            status(queue).into(),
            count(&["queued", "interrupted"]),
            count(&["dispatched", "running"]),
            count(&["waiting"]),
            count(&["retry_scheduled"]),
            count(&["scheduled"]),
            count(&["failed", "dlq_pending", "dlq_recorded"]),
            count(&["succeeded", "partial"]),
            count(&["cancelled"]),
            view.times.show_option(queue.oldest_ready_at).into(),
        ]);
    }
    table
}
