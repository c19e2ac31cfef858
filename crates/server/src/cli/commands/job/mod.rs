//! `windlass job`: make jobs, look at them, act on them.

mod act;
mod add;
mod events;
mod ledger;
mod list;
mod seen;
mod show;
mod verify;
mod watch;
mod why;

use clap::Subcommand;

pub(crate) use self::{
    add::payload,
    seen::{one_line, sentence},
    show::{Facts, block, error_block},
};
use crate::cli::{look::view::View, trouble::Trouble};

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// Enqueue a job.
    Add(add::Add),
    /// List jobs, newest first.
    List(list::List),
    /// Show all that is known of a job: where it stands, its attempts, its history, its payload.
    Show(show::Show),
    /// Say why a job is not running.
    Why(why::Why),
    /// Follow jobs until their ends. It ends with 0 if all succeeded, with 10 if one did not.
    Watch(watch::Watch),
    /// List the history of a job, event by event.
    Events(events::Events),
    /// Check that the history of a job is the one that was written.
    Verify(verify::Verify),
    /// Ask jobs to stop, or stop them: by name, or all that fit.
    Cancel(act::Cancel),
    /// List the steps of a durable job, and what came of them.
    Steps(ledger::Steps),
    /// Signal a durable job. The signal is kept until the job asks for it.
    Signal(ledger::Signal),
    /// Let a durable job go on that waits for a person, and state what became of its step.
    Resume(ledger::Resume),
    /// Make retries due now, or run jobs that failed or were cancelled again: by name, or all that fit.
    Retry(act::Retry),
}

pub(crate) async fn run(command: &JobCommand, view: &View) -> Result<(), Trouble> {
    match command {
        JobCommand::Add(command) => add::run(command, view).await,
        JobCommand::List(command) => list::run(command, view).await,
        JobCommand::Show(command) => show::run(command, view).await,
        JobCommand::Why(command) => why::run(command, view).await,
        JobCommand::Watch(command) => watch::run(command, view).await,
        JobCommand::Events(command) => events::run(command, view).await,
        JobCommand::Verify(command) => verify::run(command, view).await,
        JobCommand::Cancel(command) => act::cancel(command, view).await,
        JobCommand::Retry(command) => act::retry(command, view).await,
        JobCommand::Steps(command) => ledger::steps(command, view).await,
        JobCommand::Signal(command) => ledger::signal(command, view).await,
        JobCommand::Resume(command) => ledger::resume(command, view).await,
    }
}
