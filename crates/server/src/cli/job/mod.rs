//! `windlass job`: make jobs, look at them, act on them.

mod act;
mod add;
mod list;
mod why;

use clap::Subcommand;

pub(crate) use self::add::payload;
use super::{trouble::Trouble, view::View};

#[derive(Subcommand)]
pub(crate) enum JobCommand {
    /// Enqueue a job.
    Add(add::Add),
    /// List jobs, newest first.
    List(list::List),
    /// Say why a job is not running.
    Why(why::Why),
    /// Ask a job to stop, or stop it.
    Cancel(act::Cancel),
    /// Make a retry due now, or run a job that failed or was cancelled again.
    Retry(act::Retry),
}

pub(crate) async fn run(command: &JobCommand, view: &View) -> Result<(), Trouble> {
    match command {
        JobCommand::Add(command) => add::run(command, view).await,
        JobCommand::List(command) => list::run(command, view).await,
        JobCommand::Why(command) => why::run(command, view).await,
        JobCommand::Cancel(command) => act::cancel(command, view).await,
        JobCommand::Retry(command) => act::retry(command, view).await,
    }
}
