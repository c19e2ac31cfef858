//! `windlass dlq`: what is left of jobs that failed, until somebody decides.
//!
//! A letter has the digits of its job: wherever a letter is named, its job can be named as well.

mod act;
mod groups;
mod list;
mod show;

use clap::Subcommand;
use windlass_kernel::LetterState;

use crate::cli::{look::view::View, trouble::Trouble};

#[derive(Subcommand)]
pub(crate) enum DlqCommand {
    /// List dead letters, newest first.
    List(list::List),
    /// Count dead letters by cause, the largest first.
    Groups(groups::Groups),
    /// Show a dead letter with its job and payload.
    Show(show::Show),
    /// Let new jobs take over: by name, or for all that fit.
    Requeue(act::Requeue),
    /// Ask to throw dead letters away. A second person has to agree.
    Discard(act::Discard),
    /// Agree to throw dead letters away, as a second person.
    Approve(act::Approve),
}

pub(crate) async fn run(command: &DlqCommand, view: &View) -> Result<(), Trouble> {
    match command {
        DlqCommand::List(command) => list::run(command, view).await,
        DlqCommand::Groups(command) => groups::run(command, view).await,
        DlqCommand::Show(command) => show::run(command, view).await,
        DlqCommand::Requeue(command) => act::requeue(command, view).await,
        DlqCommand::Discard(command) => act::discard(command, view).await,
        DlqCommand::Approve(command) => act::approve(command, view).await,
    }
}

/// The letter that is meant by its own id or by that of its job.
fn letter_id(given: &str) -> String {
    given.strip_prefix("job_").map_or_else(|| given.to_owned(), |digits| format!("dlq_{digits}"))
}

/// How the state of a letter looks: as the state of a job that is much like it.
fn look(state: LetterState) -> (&'static str, anstyle::Style) {
    use crate::cli::look::view::state_look;
    match state {
        LetterState::Open => state_look("failed"),
        LetterState::DiscardRequested => state_look("interrupted"),
        LetterState::Requeued => state_look("succeeded"),
        LetterState::Discarded => state_look("cancelled"),
    }
}
