//! The whole history of a store, read against every rule.

use serde::Serialize;
use windlass_store::{
    Error,
    check::{Invariant, Report, Violation},
    postgres, sqlite,
};

use crate::cli::{look::prose::wrapped, store::StoreName};

/// What the whole history told.
#[derive(Serialize)]
pub(super) struct Deep {
    jobs: u64,
    events: u64,
    log_rows: u64,
    dead_letters: u64,
    violations: Vec<Broken>,
    more: u64,
    #[serde(skip)]
    text: String,
}

#[derive(Serialize)]
struct Broken {
    rule: String,
    job: Option<String>,
    sentence: String,
}

/// Reads everything.
pub(super) async fn check(name: &StoreName) -> Result<Report, Error> {
    match name {
        StoreName::File(path) => sqlite::check(path),
        StoreName::Server(options) => postgres::check(options).await,
    }
}

impl Deep {
    #[expect(clippy::needless_pass_by_value, reason = "a report is told once")]
    pub(super) fn new(report: Report) -> Self {
        let broken = |it: &Violation| Broken {
            rule: it.invariant.to_string(),
            job: it.job.map(|job| job.to_string()),
            sentence: it.sentence.clone(),
        };
        Self {
            jobs: report.jobs,
            events: report.events,
            log_rows: report.log_rows,
            dead_letters: report.letters,
            violations: report.violations.iter().map(broken).collect(),
            more: report.more,
            text: format!("{report}\n{}", advice(&report)),
        }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.more == 0
    }

    /// What the whole history told. Events below a broken rule stay as they are.
    pub(super) fn text(&self, width: usize) -> String {
        let line = |line: &str| match line.starts_with(' ') {
            true => format!("{line}\n"),
            false => format!("{}\n", wrapped(line, 0, width)),
        };
        self.text.lines().map(line).collect()
    }
}

fn advice(report: &Report) -> &'static str {
    if report.is_clean() {
        "Every rule holds.\n"
    } else if report.violations.iter().all(|it| it.invariant == Invariant::InboxSetAside) {
        "All else holds. Look at the rows in inbox_set_aside: put them back into inbox once the cause is gone, \
         or delete them.\n"
    } else {
        "Stop what serves this store, keep a copy of it, and restore the last backup that is healthy.\n"
    }
}
