//! The attempts of a job: a bar for each, who ran it, how long, and what came of it.

use std::collections::BTreeMap;

use unicode_width::UnicodeWidthStr as _;
use windlass::wire::AttemptDocument;
use windlass_kernel::{AttemptState, State, WorkerId};

use super::{
    super::seen::{one_line, sentence},
    Page,
    bars::{self, Span},
    facts::PAGE,
};
use crate::cli::look::{
    table::shortened,
    times::{exact, rough},
    view::{BOLD, DIM, View, state_look},
};

/// How many attempts are shown: the first, and the last.
const FIRST: usize = 3;
const LAST: usize = 9;
/// How much of a worker's name is shown.
const WORKER: usize = 16;

/// One line.
struct Row {
    number: u32,
    spans: Vec<Span>,
    state: &'static str,
    worker: String,
    took: String,
    words: String,
}

pub(super) fn section(page: &Page, view: &View) -> String {
    if page.attempts.is_empty() {
        return String::new();
    }
    let width = view.width.min(PAGE);
    let end = page.job.finished_at.unwrap_or_else(|| view.times.now().max(page.job.updated_at));
    let mut rows = rows(page, bars::spans(&page.attempts, &page.events, end), view);
    let hidden = rows.len().saturating_sub(FIRST + LAST);
    if hidden > 0 {
        rows.drain(FIRST..FIRST + hidden);
    }
    let room = (width * 2 / 5).clamp(16, 48);
    let spans: Vec<&[Span]> = rows.iter().map(|row| row.spans.as_slice()).collect();
    let styles: Vec<_> = rows.iter().map(|row| state_look(row.state).1).collect();
    let drawn = bars::draw(&spans, &styles, room);
    let numbers = rows.iter().map(|row| row.number.to_string().len()).max().unwrap_or(1).max(2);
    let workers = rows.iter().map(|row| row.worker.width()).max().unwrap_or(0);
    let took = rows.iter().map(|row| row.took.width()).max().unwrap_or(0);
    let mut text = format!("{BOLD}Attempts{BOLD:#}  {DIM}{}{DIM:#}\n", drawn.legend);
    for (at, (row, bar)) in rows.iter().zip(&drawn.bars).enumerate() {
        if hidden > 0 && at == FIRST {
            text.push_str(&format!("  {DIM}{:>numbers$}  {hidden} more{DIM:#}\n", "…"));
        }
        let (shape, style) = state_look(row.state);
        let used = 2 + numbers + 2 + room + 2 + took + 2 + workers + 2 + 2;
        let words = shortened(&row.words, width.saturating_sub(used).max(10));
        text.push_str(&format!(
            "  {:>numbers$}  {bar}  {:>took$}  {:<workers$}  {style}{shape} {words}{style:#}\n",
            row.number, row.took, row.worker
        ));
    }
    let whole = exact(drawn.whole);
    let axis = format!("0{:>rest$}", whole, rest = room - 1);
    text.push_str(&format!("  {:>numbers$}  {DIM}{axis}{DIM:#}\n", ""));
    text
}

/// A line for each attempt, and for the one that is to come.
fn rows(page: &Page, mut spans: BTreeMap<u32, Vec<Span>>, view: &View) -> Vec<Row> {
    let now = view.times.now();
    let mut rows = Vec::new();
    for attempt in &page.attempts {
        let took = attempt.started_at.map(|from| {
            let took = attempt.finished_at.unwrap_or(now).since(from);
            if attempt.finished_at.is_some() { exact(took) } else { rough(took) }
        });
        let (state, words) = outcome(attempt, page.job.state);
        rows.push(Row {
            number: attempt.attempt,
            spans: spans.remove(&attempt.attempt).unwrap_or_default(),
            state,
            worker: worker(attempt),
            took: took.unwrap_or_default(),
            words,
        });
    }
    for (number, spans) in spans {
        let (state, words) = match page.job.next_retry_at {
            Some(at) => ("retry_scheduled", format!("next, due {}", view.times.show(at))),
            None => ("queued", "next".to_owned()),
        };
        let (worker, took) = (String::new(), String::new());
        rows.push(Row { number, spans, state, worker, took, words });
    }
    rows.sort_by_key(|row| row.number);
    rows
}

/// The state whose look an attempt has, and what came of it.
fn outcome(attempt: &AttemptDocument, job_state: State) -> (&'static str, String) {
    let failed = || attempt.error.as_ref().map(sentence).unwrap_or_default();
    match (attempt.state, job_state) {
        (AttemptState::Succeeded, _) => ("succeeded", "succeeded".to_owned()),
        (AttemptState::Partial, _) => ("partial", "done in part".to_owned()),
        (AttemptState::Failed, _) => ("failed", failed()),
        (AttemptState::Cancelled, _) => ("cancelled", "cancelled".to_owned()),
        (AttemptState::Planned, _) => ("dispatched", "claimed".to_owned()),
        (AttemptState::Running, State::Interrupted) => ("interrupted", "interrupted".to_owned()),
        (AttemptState::Running, State::Waiting) => ("waiting", "parked".to_owned()),
        (AttemptState::Running, State::Queued | State::Dispatched) => {
            ("queued", "goes on".to_owned())
        }
        (AttemptState::Running, _) => ("running", "runs".to_owned()),
    }
}

/// Who ran an attempt: if it was taken from one, who has it from there.
fn worker(attempt: &AttemptDocument) -> String {
    let [first, last] = [&attempt.first_worker, &attempt.last_worker]
        .map(|worker| worker.as_ref().map(WorkerId::as_str).map(one_line).unwrap_or_default());
    match first == last {
        true => shortened(&last, WORKER),
        false if first.width() + last.width() + 3 <= WORKER => format!("{first} → {last}"),
        // Where there is no room for both, the last counts: it is the one that ended the attempt.
        false => format!("→ {}", shortened(&last, WORKER - 2)),
    }
}
