//! What can be done with a job next.

use windlass::wire::JobDocument;
use windlass_kernel::State;

use crate::cli::look::{prose, view::BOLD};

pub(super) fn section(job: &JobDocument, width: usize) -> String {
    let id = &job.job_id.to_string();
    let letter = job.dlq_id.map_or_else(|| id.clone(), |letter| letter.to_string());
    let watch = (format!("windlass job watch {id}"), "follow it until its end");
    let cancel = (format!("windlass job cancel {id}"), "stop it");
    let now = |what| (format!("windlass job retry {id}"), what);
    let commands = match job.state {
        State::Failed => vec![
            (format!("windlass dlq show {letter}"), "look at its dead letter"),
            (format!("windlass dlq requeue {letter}"), "let a new job take over"),
        ],
        State::Cancelled => vec![now("run it again, as a new job")],
        State::Succeeded | State::Partial => {
            vec![(format!("windlass job verify {id}"), "check that its history is whole")]
        }
        State::Scheduled | State::RetryScheduled => vec![watch, now("run it now"), cancel],
        State::Queued | State::Interrupted => {
            vec![watch, (format!("windlass job why {id}"), "ask again why it waits"), cancel]
        }
        _ => vec![watch, cancel],
    };
    format!("{BOLD}Next{BOLD:#}\n{}", prose::commands(&commands, width))
}
