//! `windlass schedule`: jobs that are made at their times.

mod act;
mod add;
mod backfill;
mod history;
mod list;
mod preview;
mod show;

use clap::Subcommand;
use serde::Deserialize;
use windlass_kernel::{Timestamp, schedule::When};

use super::{times, trouble::Trouble, view::View};

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

/// What is read of a schedule.
#[derive(Deserialize)]
struct Schedule {
    name: String,
    when: When,
    kind: String,
    queue: String,
    pause: Option<Paused>,
    next_at: Option<Timestamp>,
    last_slot: Option<Timestamp>,
    last_job_id: Option<String>,
}

#[derive(Deserialize)]
struct Paused {
    by: String,
    at: Timestamp,
    reason: Option<String>,
}

impl Schedule {
    /// Its slots, in words.
    fn slots(&self) -> String {
        match &self.when {
            When::Cron { expression, zone } => format!("{expression} {zone}"),
            When::Every { period, .. } => format!("every {}", times::written(*period)),
            When::At(at) => format!("at {at}"),
        }
    }

    /// Whether it goes on.
    fn status(&self) -> &'static str {
        match (&self.pause, self.next_at) {
            (Some(_), _) => "paused",
            (None, Some(_)) => "active",
            (None, None) => "over",
        }
    }
}
