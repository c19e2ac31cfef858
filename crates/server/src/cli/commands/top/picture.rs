//! One picture: rates, queues, workers and alerts as text.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use anstyle::{AnsiColor, Style};
use serde::Deserialize;
use windlass_kernel::Timestamp;

use super::rates::Rates;
use crate::cli::look::{
    count::grouped,
    table::{Cell, Room, Table, shortened},
    times::{clock, rough},
    view::{BOLD, DIM, View},
};

const BAD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));
const WARM: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));
const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));

/// What is read of the document.
#[derive(Deserialize)]
pub(super) struct Overview {
    pub(super) now: Timestamp,
    pub(super) counted_at: Timestamp,
    pub(super) queues: Vec<Queue>,
    pub(super) workers: Vec<Worker>,
    pub(super) totals: Option<Totals>,
    pub(super) alerts: Vec<Alert>,
    #[serde(default = "yes")]
    pub(super) alerts_known: bool,
}

/// A server that does not say so looks.
fn yes() -> bool {
    true
}

impl Default for Overview {
    fn default() -> Self {
        let at = Timestamp::MIN;
        let (queues, workers, alerts) = (Vec::new(), Vec::new(), Vec::new());
        Self { now: at, counted_at: at, queues, workers, totals: None, alerts, alerts_known: true }
    }
}

#[derive(Deserialize)]
pub(super) struct Queue {
    queue: String,
    counts: BTreeMap<String, u64>,
    oldest_ready_at: Option<Timestamp>,
    paused: bool,
    draining: bool,
}

#[derive(Deserialize)]
pub(super) struct Worker {
    worker_id: String,
    leased_until: Option<Timestamp>,
    held: u64,
    queues: Vec<String>,
}

#[derive(Clone, Default, Deserialize)]
pub(super) struct Totals {
    pub(super) enqueued: u64,
    pub(super) started: u64,
    pub(super) succeeded: u64,
    pub(super) retried: u64,
    pub(super) failed: u64,
    pub(super) started_by_queue: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
pub(super) struct Alert {
    severity: String,
    summary: String,
    remedy: String,
    since: Timestamp,
}

impl Queue {
    fn count(&self, states: &[&str]) -> u64 {
        states.iter().filter_map(|state| self.counts.get(*state)).sum()
    }
}

/// What it is about, what time it is, and the keys.
pub(super) fn title(place: &str, state: Option<&str>, view: &View) -> String {
    let state = state.map_or_else(String::new, |state| format!("  {WARM}{state}{WARM:#}"));
    format!(
        "{BOLD}windlass top{BOLD:#}  {place}  {}  {DIM}q quit  p pause{DIM:#}{state}\n\n",
        &clock(view.times.now(), view.times)[..8]
    )
}

/// Everything.
pub(super) fn draw(overview: &Overview, rates: &Rates, view: &View) -> String {
    let mut text = rates_line(overview, rates, view);
    let age = overview.now.since(overview.counted_at);
    text.push('\n');
    text.push_str(&queues(overview, rates, view).fit(view.width));
    if age >= Duration::from_secs(2) {
        let _ = writeln!(text, "{DIM}jobs were counted {} ago{DIM:#}", rough(age));
    }
    text.push('\n');
    text.push_str(&workers(overview).fit(view.width));
    text.push('\n');
    text.push_str(&alerts(overview, view));
    text
}

fn rates_line(overview: &Overview, rates: &Rates, view: &View) -> String {
    if overview.totals.is_none() {
        let why = if overview.alerts_known {
            "Rates are for those who look after all tenants."
        } else {
            "Rates are known to servers: name one with --server URL."
        };
        return format!("{DIM}{why}{DIM:#}\n");
    }
    let Some(rate) = rates.now() else {
        return format!("{DIM}Rates come with the next look.{DIM:#}\n");
    };
    let parts = [
        ("enqueued", rate.enqueued, Style::new()),
        ("started", rate.started, Style::new()),
        ("succeeded", rate.succeeded, GOOD),
        ("retried", rate.retried, WARM),
        ("failed", rate.failed, BAD),
    ];
    let (mut text, mut room) = (String::new(), view.width);
    for (name, rate, style) in parts {
        let style = if rate > 0.0 { style } else { DIM };
        let part = format!("{name} {}/s", per_second(rate));
        if !text.is_empty() {
            let fits = part.len() + 3 <= room;
            text.push_str(if fits { "   " } else { "\n" });
            room = if fits { room - 3 } else { view.width };
        }
        room = room.saturating_sub(part.len());
        let _ = write!(text, "{style}{part}{style:#}");
    }
    text.push('\n');
    let curve = rates.curve();
    if !curve.is_empty() {
        let _ = writeln!(text, "{GOOD}{curve}{GOOD:#}");
    }
    text
}

/// A rate as people read it: small ones have a digit after the point.
fn per_second(rate: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is no less than 0"
    )]
    match rate {
        0.0 => "0".to_owned(),
        ..10.0 => format!("{rate:.1}"),
        _ => grouped(rate.round() as u64),
    }
}

fn queues(overview: &Overview, rates: &Rates, view: &View) -> Table {
    let mut table = Table::new("There is no job yet, and so no queue.")
        .column("QUEUE", Room::Shorten(10))
        .number("READY", Room::Needed)
        .number("RUNNING", Room::Needed)
        .number("RETRYING", Room::Spare(1))
        .number("LATER", Room::Spare(4))
        .number("DEAD", Room::Spare(0))
        .number("OLDEST", Room::Spare(2))
        .number("STARTED/S", Room::Spare(3));
    for queue in &overview.queues {
        let number = |states: &[&str], style: Style| match queue.count(states) {
            0 => Cell::styled("0", DIM),
            count => Cell::styled(grouped(count), style),
        };
        let name = match (queue.paused, queue.draining) {
            (true, _) => format!("{} (paused)", queue.queue),
            (false, true) => format!("{} (draining)", queue.queue),
            (false, false) => queue.queue.clone(),
        };
        let rate = rates.now().map(|rate| rate.started_by_queue.get(&queue.queue).copied());
        table.row([
            name.into(),
            number(&["queued", "interrupted"], Style::new()),
            number(&["running", "dispatched"], GOOD),
            number(&["retry_scheduled"], WARM),
            number(&["scheduled", "waiting"], Style::new()),
            number(&["failed"], BAD),
            queue.oldest_ready_at.map_or("-".into(), |at| view.times.age(at, overview.now).into()),
            rate.map_or_else(|| "-".into(), |rate| per_second(rate.unwrap_or(0.0)).into()),
        ]);
    }
    table
}

/// How long a worker is shown that holds nothing any more.
const LATELY: Duration = Duration::from_secs(60);

fn workers(overview: &Overview) -> Table {
    let mut table = Table::new("No worker waits for jobs, or held one a minute ago.")
        .column("WORKER", Room::Shorten(12))
        .number("HOLDS", Room::Needed);
    let is_there = |worker: &&Worker| {
        let held_lately = worker.leased_until.is_some_and(|at| overview.now.since(at) < LATELY);
        worker.held > 0 || held_lately || !worker.queues.is_empty()
    };
    for worker in overview.workers.iter().filter(is_there) {
        table.row([worker.worker_id.as_str().into(), grouped(worker.held).into()]);
    }
    table
}

fn alerts(overview: &Overview, view: &View) -> String {
    if !overview.alerts_known {
        return format!("{DIM}Alerts are known to servers: name one with --server URL.{DIM:#}\n");
    }
    if overview.alerts.is_empty() {
        return format!("{DIM}No alerts.{DIM:#}\n");
    }
    let mut text = String::new();
    for alert in &overview.alerts {
        let style = if alert.severity == "P1" { BAD } else { WARM };
        let since = view.times.show(alert.since);
        let line = format!("! {} {}, since {since}", alert.severity, alert.summary);
        let remedy = shortened(&alert.remedy, view.width.saturating_sub(4));
        let _ = writeln!(
            text,
            "{style}{}{style:#}\n    {DIM}{remedy}{DIM:#}",
            shortened(&line, view.width)
        );
    }
    text
}
