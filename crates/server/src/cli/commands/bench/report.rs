//! What is told about the runs: a table for people, documents for programs.

use std::time::Duration;

use serde::Serialize;

use super::{options::Plan, run::Measured};
use crate::cli::{
    Output,
    look::{
        table::{Cell, Room, Table},
        view::View,
    },
};

/// One run. Programs rely on these fields.
#[derive(Serialize)]
pub(super) struct Document {
    workload: String,
    store: &'static str,
    jobs: u64,
    seconds: f64,
    jobs_per_s: f64,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    commits: u64,
    bytes_per_job: f64,
    cpu_s_per_million: f64,
    peak_rss_mb: Option<f64>,
    #[serde(flatten)]
    yard: Option<Yard>,
}

/// What the database can do at all, and how much of it was done.
#[derive(Serialize)]
struct Yard {
    yardstick_jobs_per_s: f64,
    ratio: f64,
}

impl Document {
    /// With a yardstick, its rate is the limit.
    pub(super) fn new(plan: &Plan, measured: &Measured, limit: Option<f64>) -> Self {
        let jobs = plan.jobs as f64;
        let jobs_per_s = jobs / measured.took.as_secs_f64();
        let percentile = |percent| measured.times.percentile(percent).map(millis);
        Self {
            workload: plan.workload.to_string(),
            store: plan.store,
            jobs: plan.jobs,
            seconds: rounded(measured.took.as_secs_f64()),
            jobs_per_s: rounded(jobs_per_s),
            p50_ms: percentile(50),
            p95_ms: percentile(95),
            p99_ms: percentile(99),
            commits: measured.commits,
            bytes_per_job: rounded(measured.grown_bytes as f64 / jobs),
            cpu_s_per_million: rounded(measured.cpu.as_secs_f64() * 1e6 / jobs),
            peak_rss_mb: measured.peak_rss_bytes.map(|bytes| rounded(bytes as f64 / 1e6)),
            yard: limit.map(|limit| Yard::new(limit, jobs_per_s)),
        }
    }
}

impl Yard {
    fn new(limit: f64, jobs_per_s: f64) -> Self {
        Self { yardstick_jobs_per_s: rounded(limit), ratio: rounded(jobs_per_s / limit) }
    }
}

/// One run is a document; several are a list of them.
pub(super) fn shown(plan: &Plan, documents: &[Document], view: &View) -> String {
    let line = |it: &Document| serde_json::to_string(it).expect("figures are plain data") + "\n";
    let pretty = match documents {
        [one] => serde_json::to_string_pretty(one),
        all => serde_json::to_string_pretty(all),
    };
    match view.output {
        Output::Table => table(plan, documents, view.width),
        Output::Json => pretty.expect("figures are plain data") + "\n",
        Output::Jsonl => documents.iter().map(line).collect(),
    }
}

/// A row for each run, and the median of the ratios.
fn table(plan: &Plan, documents: &[Document], width: usize) -> String {
    let mut table =
        COLUMNS.iter().fold(Table::default(), |table, (name, room)| table.number(name, *room));
    if plan.yardstick.is_some() {
        table = table.number("yardstick/s", Room::Spare(1)).number("ratio", Room::Needed);
    }
    for (place, run) in documents.iter().enumerate() {
        table.row(row(place + 1, run).into_iter().map(Cell::from));
    }
    let mut text = title(plan) + &table.fit(width);
    let ratios = documents.iter().filter_map(|run| run.yard.as_ref()).map(|yard| yard.ratio);
    if let Some(median) = median(ratios.collect()) {
        text.push_str(&format!("median ratio {median:.2}\n"));
    }
    text
}

fn title(plan: &Plan) -> String {
    let Plan { workload, store, concurrency, .. } = plan;
    let mut title = format!("{workload} on {store}, {concurrency} at a time");
    let counts = [
        ("history", plan.history),
        ("backlog", plan.backlog),
        ("limit", plan.limit.map_or(0, u64::from)),
        ("keys", plan.keys),
        ("tenants", if plan.tenants > 1 { plan.tenants } else { 0 }),
    ];
    for (what, count) in counts {
        if count > 0 {
            title.push_str(&format!(", {what} {}", grouped(count as f64)));
        }
    }
    title + "\n"
}

/// What is told of each run, and what goes first where there is no room for all of it.
const COLUMNS: [(&str, Room); 11] = [
    ("run", Room::Needed),
    ("jobs", Room::Needed),
    ("seconds", Room::Spare(3)),
    ("jobs/s", Room::Needed),
    ("p50 ms", Room::Needed),
    ("p95 ms", Room::Spare(2)),
    ("p99 ms", Room::Needed),
    ("commits", Room::Spare(7)),
    ("bytes/job", Room::Spare(5)),
    ("cpu s/million", Room::Spare(6)),
    ("peak MB", Room::Spare(4)),
];

fn row(number: usize, run: &Document) -> Vec<String> {
    let known = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let mut row = vec![
        number.to_string(),
        grouped(run.jobs as f64),
        format!("{:.2}", run.seconds),
        grouped(run.jobs_per_s),
        known(run.p50_ms),
        known(run.p95_ms),
        known(run.p99_ms),
        grouped(run.commits as f64),
        grouped(run.bytes_per_job),
        format!("{:.1}", run.cpu_s_per_million),
        known(run.peak_rss_mb),
    ];
    if let Some(yard) = &run.yard {
        row.extend([grouped(yard.yardstick_jobs_per_s), format!("{:.2}", yard.ratio)]);
    }
    row
}

/// A whole number with its thousands apart, as people can also type it.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let is_even = values.len().is_multiple_of(2);
    Some(if is_even { (values[middle - 1] + upper) / 2.0 } else { upper })
}

fn millis(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64() * 1000.0)
}

/// More than three digits behind the point is noise.
fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        for (number, expected) in
            [(0.0, "0"), (999.4, "999"), (1000.0, "1_000"), (1_234_567.0, "1_234_567")]
        {
            assert_eq!(grouped(number), expected);
        }
    }

    #[test]
    fn the_median_stands_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
