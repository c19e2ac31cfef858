//! `windlass queue`: look at queues, hold them back, limit what runs at once.

mod limit;
mod list;
mod rules;
mod show;
mod turn;

use clap::Subcommand;
use windlass::wire::QueueDocument;

use crate::cli::{look::view::View, trouble::Trouble};

#[derive(Subcommand)]
pub(crate) enum QueueCommand {
    /// List queues, with how many jobs are in each state.
    List(list::List),
    /// A queue: its jobs by state, and the rules that hold for it.
    Show(show::Show),
    /// Start nothing of a queue. What runs goes on, and new jobs are taken in.
    Pause(turn::Turn),
    /// Let a queue go on that was paused or drained.
    Resume(turn::Turn),
    /// Take nothing new into a queue. What is there runs to its end.
    Drain(turn::Turn),
    /// Set how many jobs of a queue may run at once, or begin in a time.
    Limit(limit::Limit),
    /// List the rules that say who may run, or take one away.
    Rules(rules::Rules),
}

pub(crate) async fn run(command: &QueueCommand, view: &View) -> Result<(), Trouble> {
    match command {
        QueueCommand::List(command) => list::run(command, view).await,
        QueueCommand::Show(command) => show::run(command, view).await,
        QueueCommand::Pause(command) => turn::run(command, "pause", view).await,
        QueueCommand::Resume(command) => turn::run(command, "resume", view).await,
        QueueCommand::Drain(command) => turn::run(command, "drain", view).await,
        QueueCommand::Limit(command) => limit::run(command, view).await,
        QueueCommand::Rules(command) => rules::run(command, view).await,
    }
}

/// How many jobs of a queue are in one of these states.
fn count(queue: &QueueDocument, states: &[&str]) -> u64 {
    states.iter().filter_map(|state| queue.counts.get(*state)).sum()
}

/// Whether a queue goes on.
fn status(queue: &QueueDocument) -> &'static str {
    match (queue.paused, queue.draining) {
        (false, false) => "open",
        (true, false) => "paused",
        (false, true) => "draining",
        (true, true) => "paused, draining",
    }
}
