//! What can be done with a job next.

use super::super::seen::Job;
use crate::cli::{prose, view::BOLD};

pub(super) fn section(job: &Job, width: usize) -> String {
    let id = job.job_id.as_str();
    let letter = job.dlq_id.as_deref().unwrap_or(id);
    let watch = (format!("windlass job watch {id}"), "follow it until its end");
    let cancel = (format!("windlass job cancel {id}"), "stop it");
    let now = |what| (format!("windlass job retry {id}"), what);
    let commands = match job.state.as_str() {
        "failed" => vec![
            (format!("windlass dlq show {letter}"), "look at its dead letter"),
            (format!("windlass dlq requeue {letter}"), "let a new job take over"),
        ],
        "cancelled" => vec![now("run it again, as a new job")],
        "succeeded" | "partial" => {
            vec![(format!("windlass job verify {id}"), "check that its history is whole")]
        }
        "scheduled" | "retry_scheduled" => vec![watch, now("run it now"), cancel],
        "queued" | "interrupted" => {
            vec![watch, (format!("windlass job why {id}"), "ask again why it waits"), cancel]
        }
        _ => vec![watch, cancel],
    };
    format!("{BOLD}Next{BOLD:#}\n{}", prose::commands(&commands, width))
}
