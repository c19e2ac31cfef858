//! Where a job stands, as a sentence.

use std::time::Duration;

use windlass_kernel::{Cause, State, Timestamp};

use super::{
    super::seen::{Event, one_line, sentence as failed, waits},
    Page,
};
use crate::cli::look::times::{Times, exact, rough};

/// The sentence, without its shape and colour.
pub(super) fn sentence(page: &Page, times: Times) -> String {
    let job = &page.job;
    let now = times.now();
    let worker = job.lease_owner.as_deref().unwrap_or("-");
    let tries = format!("try {} of {}", job.retry_count + 1, u64::from(job.max_retries) + 1);
    let lease = job.leased_until.map(|until| format!(", lease ends {}", times.show(until)));
    let lease = lease.unwrap_or_default();
    let asked = if job.cancel_requested { "; asked to stop" } else { "" };
    let error = job.error.as_ref().map(|error| format!(": {}", failed(error)));
    let error = error.unwrap_or_default();
    let line = match job.state {
        State::Scheduled => format!("scheduled: due {}", times.show(job.due_at)),
        State::Queued => {
            let age = rough(now.since(page.since(State::Queued).unwrap_or(job.updated_at)));
            format!("queued for {age} in queue {}", job.queue)
        }
        State::Dispatched => format!("claimed by worker {worker}, not started yet{lease}"),
        State::Running => {
            let age =
                page.since(State::Running).map(|since| format!(" for {}", rough(now.since(since))));
            format!("running on worker {worker}{} ({tries}){lease}", age.unwrap_or_default())
        }
        State::Waiting => {
            let on = job.wait.as_ref().map(|wait| waits(wait, times)).unwrap_or_default();
            format!("parked by its handler: waits {on}")
        }
        State::RetryScheduled => {
            let due = job.next_retry_at.unwrap_or(now);
            let when = match due.since(now) {
                left if left >= Duration::from_secs(1) => format!("retrying in {}", rough(left)),
                _ => "retrying as soon as a worker takes it".to_owned(),
            };
            let tried = format!("try {} of {}", job.retry_count, u64::from(job.max_retries) + 1);
            format!("{when}: {tried} failed{error}")
        }
        State::Interrupted => {
            format!("interrupted in {tries}: its worker is gone; it goes on when a worker takes it")
        }
        State::Succeeded => format!("succeeded {}", page.course()),
        State::Partial => format!("done in part {}; what remains is below", page.course()),
        State::Failed => {
            format!("failed for good {}{error}; it is in the dead letters", page.course())
        }
        State::Cancelled => page.cancelled(),
        State::DlqPending | State::DlqRecorded => job.state.to_string(),
    };
    line + asked
}

impl Page {
    /// When it came into this state.
    fn since(&self, state: State) -> Option<Timestamp> {
        let entered = |event: &&Event| event.to == state && event.from != Some(state);
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
            return format!("cancelled {course}: {}", failed(error));
        }
        let last = |cause: Cause| self.events.iter().rev().find(|event| event.cause == cause);
        let Some(by) = last(Cause::CancelRequested).or_else(|| last(Cause::CancelCommand)) else {
            return format!("cancelled {course}");
        };
        let reason = by.fact["reason"].as_str().map(|words| format!(": \"{}\"", one_line(words)));
        format!("cancelled by {} {course}{}", by.actor, reason.unwrap_or_default())
    }
}
