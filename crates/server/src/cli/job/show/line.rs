//! Where a job stands, as a sentence.

use std::time::Duration;

use super::{
    super::seen::{one_line, waits},
    Page,
};
use crate::cli::times::{Times, exact, rough};

/// The sentence, without its shape and colour.
pub(super) fn sentence(page: &Page, times: Times) -> String {
    let job = &page.job;
    let now = times.now();
    let worker = job.lease_owner.as_deref().unwrap_or("-");
    let tries = format!("try {} of {}", job.retry_count + 1, u64::from(job.max_retries) + 1);
    let lease = job.leased_until.map(|until| format!(", lease ends {}", times.show(until)));
    let lease = lease.unwrap_or_default();
    let asked = if job.cancel_requested { "; asked to stop" } else { "" };
    let error = job.error.as_ref().map(|error| format!(": {}", error.sentence()));
    let error = error.unwrap_or_default();
    let line = match job.state.as_str() {
        "scheduled" => format!("scheduled: due {}", times.show(job.due_at)),
        "queued" => {
            let age = rough(now.since(page.since("queued").unwrap_or(job.updated_at)));
            format!("queued for {age} in queue {}", job.queue)
        }
        "dispatched" => format!("claimed by worker {worker}, not started yet{lease}"),
        "running" => {
            let age =
                page.since("running").map(|since| format!(" for {}", rough(now.since(since))));
            format!("running on worker {worker}{} ({tries}){lease}", age.unwrap_or_default())
        }
        "waiting" => {
            let on = job.wait.as_ref().map(|wait| waits(wait, times)).unwrap_or_default();
            format!("parked by its handler: waits {on}")
        }
        "retry_scheduled" => {
            let due = job.next_retry_at.unwrap_or(now);
            let when = match due.since(now) {
                left if left >= Duration::from_secs(1) => format!("retrying in {}", rough(left)),
                _ => "retrying as soon as a worker takes it".to_owned(),
            };
            let failed = format!("try {} of {}", job.retry_count, u64::from(job.max_retries) + 1);
            format!("{when}: {failed} failed{error}")
        }
        "interrupted" => {
            format!("interrupted in {tries}: its worker is gone; it goes on when a worker takes it")
        }
        "succeeded" => format!("succeeded {}", page.course()),
        "partial" => format!("done in part {}; what remains is below", page.course()),
        "failed" => format!("failed for good {}{error}; it is in the dead letters", page.course()),
        "cancelled" => page.cancelled(),
        other => other.to_owned(),
    };
    line + asked
}

impl Page {
    /// When it came into this state.
    fn since(&self, state: &str) -> Option<windlass_kernel::Timestamp> {
        let entered =
            |event: &&super::Event| event.to == state && event.from.as_deref() != Some(state);
        self.events.iter().rev().find(entered).map(|event| event.at)
    }

    /// How many tries it took, and how long from when it was due.
    fn course(&self) -> String {
        let job = &self.job;
        let end = job.finished_at.unwrap_or(job.updated_at);
        let took = exact(end.since(job.due_at.min(end)));
        match self.attempts.len() {
            0 => "before it was tried".to_owned(),
            1 => format!("at the first try in {took}"),
            tries => format!("after {tries} tries in {took}"),
        }
    }

    /// Who cancelled it, or what did, and why.
    fn cancelled(&self) -> String {
        let course = self.course();
        if let Some(error) = &self.job.error {
            return format!("cancelled {course}: {}", error.sentence());
        }
        let last = |cause: &str| self.events.iter().rev().find(|event| event.cause == cause);
        let Some(by) = last("cancel_requested").or_else(|| last("cancel_command")) else {
            return format!("cancelled {course}");
        };
        let reason = by.fact["reason"].as_str().map(|words| format!(": \"{}\"", one_line(words)));
        format!("cancelled by {} {course}{}", by.actor, reason.unwrap_or_default())
    }
}
