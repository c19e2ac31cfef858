//! What a replay came to, for people and for programs.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use crate::cli::{
    Output,
    look::{
        output,
        prose::wrapped,
        terminal::print,
        view::{BOLD, DIM, View},
    },
};

/// What a replay came to.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    pub(super) replay: String,
    #[serde(skip)]
    pub(super) about: &'static str,
    pub(super) passed: bool,
    pub(super) trace_id: String,
    pub(super) job_id: String,
    pub(super) retry_count: u64,
    pub(super) status_transition: Vec<String>,
    pub(super) status: String,
    pub(super) dlq_id: Option<String>,
    /// What writes to its end were refused with, where some were tried: each code once.
    pub(super) refused_with: Vec<String>,
    /// What was otherwise than it must be, in sentences.
    pub(super) failures: Vec<String>,
}

/// All of them.
#[derive(Serialize)]
struct Replays<'a> {
    passed: bool,
    replays: &'a [Told],
}

pub(super) fn show(told: &[Told], view: &View) {
    match view.output {
        Output::Table => {
            let blocks = told.iter().map(|one| block(one, view.width));
            print(&blocks.collect::<Vec<_>>().join("\n"));
        }
        Output::Json => {
            let passed = told.iter().all(|one| one.passed);
            output::show(Output::Json, "", &Replays { passed, replays: told });
        }
        Output::Jsonl => told.iter().for_each(|one| output::show(Output::Jsonl, "", one)),
    }
}

fn block(told: &Told, width: usize) -> String {
    let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    let (shape, word, style) = match told.passed {
        true => ("✓", "pass", color(AnsiColor::Green)),
        false => ("✗", "fail", color(AnsiColor::Red)),
    };
    let (name, about) = (&told.replay, told.about);
    let mut text = format!("{style}{shape} {word}{style:#}  {BOLD}{name}{BOLD:#}  {about}\n");
    let mut line = |name: &str, value: &str| {
        let value = wrapped(value, 21, width);
        text.push_str(&format!("  {DIM}{name:<17}{DIM:#}  {value}\n"));
    };
    line("trace_id", &told.trace_id);
    line("job_id", &told.job_id);
    line("retry_count", &told.retry_count.to_string());
    line("status_transition", &told.status_transition.join(" -> "));
    if let Some(letter) = &told.dlq_id {
        line("dlq_id", letter);
    }
    if !told.refused_with.is_empty() {
        line("refused_with", &told.refused_with.join(", "));
    }
    for failure in &told.failures {
        line("but", failure);
    }
    text
}
