//! Facts: a word and what it stands for, in one column or in two.

use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;
use windlass::wire::JobDocument;

use super::super::seen::one_line;
use crate::cli::look::{
    table::shortened,
    times::exact,
    view::{DIM, View},
};

/// Words with their values.
#[derive(Default)]
pub(crate) struct Facts(Vec<(&'static str, String)>);

/// What is put in front, and between two columns.
const INDENT: usize = 2;
const GAP: usize = 4;

impl Facts {
    pub(crate) fn add(&mut self, name: &'static str, value: impl AsRef<str>) {
        self.0.push((name, one_line(value.as_ref())));
    }

    /// If there is a value.
    pub(crate) fn add_some(&mut self, name: &'static str, value: Option<impl AsRef<str>>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    /// The facts as text: in two columns if both fit.
    pub(crate) fn fit(&self, width: usize) -> String {
        let half = self.0.len().div_ceil(2);
        let (left, right) = self.0.split_at(half);
        let wide = |part: &[(&str, String)]| {
            let names = part.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
            let values = part.iter().map(|(_, value)| value.width()).max().unwrap_or(0);
            (names, values)
        };
        let ((left_name, left_value), (right_name, right_value)) = (wide(left), wide(right));
        let both = INDENT + left_name + 2 + left_value + GAP + right_name + 2 + right_value;
        let mut text = String::new();
        if both > width.min(PAGE) || right.is_empty() {
            let (name, _) = wide(&self.0);
            for fact in &self.0 {
                text.push_str(&format!("{:INDENT$}{}\n", "", line(fact, name, width)));
            }
            return text;
        }
        for (at, fact) in left.iter().enumerate() {
            let mut row = format!("{:INDENT$}{}", "", line(fact, left_name, width));
            if let Some(other) = right.get(at) {
                let blank = left_value - fact.1.width() + GAP;
                row.push_str(&format!("{:blank$}{}", "", line(other, right_name, width)));
            }
            text.push_str(&(row + "\n"));
        }
        text
    }
}

/// A page is no wider than can be read.
pub(super) const PAGE: usize = 120;

fn line((name, value): &(&str, String), names: usize, width: usize) -> String {
    let room = width.saturating_sub(INDENT + names + 2).max(20);
    format!("{DIM}{name:<names$}{DIM:#}  {}", shortened(value, room))
}

/// What is known of a job, apart from what happened to it.
pub(super) fn of(job: &JobDocument, view: &View) -> Facts {
    let mut facts = Facts::default();
    let id = job.job_id.to_string();
    let own = |text: &String| Some(text.clone()).filter(|text| *text != id);
    let ms = |ms: u64| setting(Duration::from_millis(ms));
    let time = |at| view.times.show(at);
    facts.add("kind", &job.kind);
    facts.add("queue", &job.queue);
    facts.add_some("tenant", (job.tenant != "default").then_some(&job.tenant));
    facts.add_some("priority", (job.priority != 0).then(|| job.priority.to_string()));
    facts.add_some("key", own(&job.idempotency_key));
    facts.add_some("task", own(&job.task_id));
    facts.add_some("tags", (!job.tags.is_empty()).then(|| job.tags.join(", ")));
    facts.add_some("limit key", job.limit_key.as_ref());
    facts.add_some("unique key", job.unique_key.as_ref());
    facts.add_some("parent", job.parent_job_id.map(|id| id.to_string()));
    facts.add_some("runs again", job.rerun_of.map(|id| id.to_string()));
    facts.add_some("requeued from", job.requeued_from_dlq_id.map(|id| id.to_string()));
    facts.add("trace", &job.trace_id);
    let retries = match job.max_retries {
        0 => "none".to_owned(),
        most => {
            let (first, last) = (ms(job.retry.base_ms), ms(job.retry.max_backoff_ms));
            format!("{} of {most}, after {first} up to {last}", job.retry_count)
        }
    };
    facts.add("retries", retries);
    facts.add_some("time-out", job.timeout_ms.map(ms));
    facts.add_some("deadline", job.deadline_at.map(time));
    facts.add_some(
        "cut off",
        match job.interruptions {
            0 => None,
            1 => Some("once".to_owned()),
            times => Some(format!("{times} times")),
        },
    );
    facts.add_some("dead letter", job.dlq_id.map(|id| id.to_string()));
    facts.add("created", time(job.created_at));
    facts.add_some("due", (job.due_at != job.created_at).then(|| time(job.due_at)));
    facts.add_some("started", job.started_at.map(time));
    facts.add_some("finished", job.finished_at.map(time));
    facts.add_some("progress", job.progress_at.map(time));
    facts
}

/// A duration that somebody chose: without what it has too much.
fn setting(duration: Duration) -> String {
    let text = exact(duration).replace(".00s", "s");
    let short = [" 0s", " 0m", " 0h"].iter().find_map(|none| text.strip_suffix(none));
    short.unwrap_or(&text).to_owned()
}
