//! `windlass schedule show`: one schedule as it stands.

use std::time::Duration;

use clap::Args;
use windlass::wire::ScheduleDocument;
use windlass_kernel::{
    plain::shown,
    schedule::{CatchUp, Overlap},
};

use super::{slots, status};
use crate::cli::{
    api::{Api, ApiArgs, Document, path},
    look::{
        json, times,
        view::{BOLD, DIM, View},
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Show {
    /// The name of the schedule.
    name: String,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Show, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.get(&path(&["schedules", &command.name])).await?;
    show(&document, view)?;
    api.close().await;
    Ok(())
}

/// Shows the document of a schedule.
pub(super) fn show(document: &Document, view: &View) -> Result<(), Trouble> {
    let schedule: ScheduleDocument = document.read()?;
    view.document(document, || page(&schedule, view));
    Ok(())
}

fn page(schedule: &ScheduleDocument, view: &View) -> String {
    let name = &schedule.name;
    let mut text = format!("{BOLD}{name}{BOLD:#}  {}\n\n", status(schedule));
    let mut line = |name: &str, value: String| {
        text.push_str(&format!("{DIM}{name:<9}{DIM:#} {value}\n"));
    };
    let time = |at| view.times.show(at);
    line("slots", slots(schedule));
    line("next", view.times.show_option(schedule.next_at));
    line("makes", format!("{} in queue {}", schedule.kind, schedule.queue));
    line(
        "catch-up",
        match schedule.catch_up {
            CatchUp::Skip => "slots that were missed are skipped".to_owned(),
            CatchUp::One => "of the slots that were missed the last is fired".to_owned(),
            CatchUp::All { max } => format!("slots that were missed are fired, {max} at the most"),
        },
    );
    line(
        "overlap",
        match schedule.overlap {
            Overlap::Allow => "a slot is fired also while the last job is not at its end",
            Overlap::Skip => "a slot is skipped while the last job is not at its end",
            Overlap::Queue => "a slot waits until the last job is at its end",
        }
        .to_owned(),
    );
    if schedule.jitter_ms > 0 {
        let jitter = times::written(Duration::from_millis(schedule.jitter_ms));
        line("jitter", format!("a slot may be fired up to {jitter} later"));
    }
    if let Some(start_at) = schedule.start_at {
        line("from", time(start_at));
    }
    if let Some(end_at) = schedule.end_at {
        line("until", time(end_at));
    }
    if let Some(paused) = &schedule.pause {
        let why = paused.reason.as_ref().map(|why| format!(": {}", shown(why))).unwrap_or_default();
        line("paused", format!("by {}, {}{why}", paused.by, time(paused.at)));
    }
    if let Some(slot) = schedule.last_slot {
        line("last slot", time(slot));
    }
    if let Some(job) = &schedule.last_job_id {
        line("last job", job.to_string());
    }
    if let Some(payload) = schedule.payload.as_ref().filter(|payload| payload.get() != "null") {
        let payload = json::laid_out(payload.get()).replace('\n', "\n          ");
        line("payload", payload);
    }
    text
}
