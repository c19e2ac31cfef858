//! `windlass schedule`: jobs that are made at their times.

mod act;
mod add;
mod backfill;
mod history;
mod list;
mod preview;
mod show;

use clap::Subcommand;
use windlass::wire::ScheduleDocument;
use windlass_kernel::schedule::When;

use crate::cli::{
    look::{times, view::View},
    trouble::Trouble,
};

#[derive(Subcommand)]
pub(crate) enum ScheduleCommand {
    /// List schedules by name, with their next slots.
    List(list::List),
    /// A schedule: its slots, its job, what it made last.
    Show(show::Show),
    /// Create a schedule, or change the one of that name.
    Add(Box<add::Add>),
    /// Hold back the slots of a schedule.
    Pause(act::Pause),
    /// Let a schedule go on. What it missed follows its --catch-up.
    Resume(act::Resume),
    /// Make a job of a schedule now, whatever its slots say.
    Trigger(act::Trigger),
    /// Show the next slots of a schedule, in its own zone and in UTC.
    Preview(preview::Preview),
    /// Make the jobs of past slots that have none.
    Backfill(backfill::Backfill),
    /// Show what became of the slots of a schedule, newest first.
    History(history::History),
    /// End a schedule. The jobs that it made stay.
    Delete(act::Delete),
}

pub(crate) async fn run(command: &ScheduleCommand, view: &View) -> Result<(), Trouble> {
    match command {
        ScheduleCommand::List(command) => list::run(command, view).await,
        ScheduleCommand::Show(command) => show::run(command, view).await,
        ScheduleCommand::Add(command) => add::run(command, view).await,
        ScheduleCommand::Pause(command) => act::pause(command, view).await,
        ScheduleCommand::Resume(command) => act::resume(command, view).await,
        ScheduleCommand::Trigger(command) => act::trigger(command, view).await,
        ScheduleCommand::Preview(command) => preview::run(command, view).await,
        ScheduleCommand::Backfill(command) => backfill::run(command, view).await,
        ScheduleCommand::History(command) => history::run(command, view).await,
        ScheduleCommand::Delete(command) => act::delete(command, view).await,
    }
}

/// Its slots, in words.
fn slots(schedule: &ScheduleDocument) -> String {
    match &schedule.when {
        When::Cron { expression, zone } => format!("{expression} {zone}"),
        When::Every { period, .. } => format!("every {}", times::written(*period)),
        When::At(at) => format!("at {at}"),
    }
}

/// Whether it goes on.
fn status(schedule: &ScheduleDocument) -> &'static str {
    match (&schedule.pause, schedule.next_at) {
        (Some(_), _) => "paused",
        (None, Some(_)) => "active",
        (None, None) => "over",
    }
}
