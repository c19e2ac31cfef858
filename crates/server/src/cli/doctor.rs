//! `windlass doctor`: is the database as it should be? Each finding says what to do about it.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use tokio::runtime::Runtime;
use windlass_store::{
    Error,
    check::{Report, Rule},
    postgres, sqlite,
};

use super::{
    Output, exit, output,
    store::{self, StoreArg, StoreName},
};

#[derive(Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    store: StoreArg,
    /// Read the whole history: every job, every event, every dead letter, against every rule.
    #[arg(long)]
    deep: bool,
}

/// What was found, for programs.
#[derive(Serialize)]
struct Findings {
    healthy: bool,
    jobs: u64,
    events: u64,
    log_rows: u64,
    dead_letters: u64,
    violations: Vec<Finding>,
    more: u64,
}

#[derive(Serialize)]
struct Finding {
    rule: String,
    job: Option<String>,
    sentence: String,
}

pub(crate) fn run(command: &Doctor, format: Output) -> ExitCode {
    let name = match command.store.name() {
        Ok(name) => name,
        Err(code) => return code,
    };
    if !command.deep {
        let message = "only the deep check is there so far.\nTry `windlass doctor --deep`.";
        return exit::fail(exit::USAGE, message);
    }
    let checked = match name {
        StoreName::File(path) => match store::existing(path) {
            Ok(path) => sqlite::check(&path),
            Err(code) => return code,
        },
        StoreName::Server(options) => check_server(&options),
    };
    match checked {
        Ok(report) => tell(&report, format),
        Err(error) => store::fail(&error),
    }
}

fn check_server(options: &postgres::Options) -> Result<Report, Error> {
    Runtime::new()?.block_on(postgres::check(options))
}

fn tell(report: &Report, format: Output) -> ExitCode {
    output::show(format, &format!("{report}\n{}", advice(report)), &findings(report));
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) }
}

fn advice(report: &Report) -> &'static str {
    if report.is_clean() {
        "Every rule holds.\n"
    } else if report.violations.iter().all(|it| it.rule == Rule::InboxSetAside) {
        "All else holds. Look at the rows in inbox_set_aside: put them back into inbox once the cause is gone, \
         or delete them.\n"
    } else {
        "Stop what serves this store, keep a copy of it, and restore the last backup that is healthy.\n"
    }
}

fn findings(report: &Report) -> Findings {
    let finding = |it: &windlass_store::check::Violation| Finding {
        rule: it.rule.to_string(),
        job: it.job.map(|job| job.to_string()),
        sentence: it.sentence.clone(),
    };
    Findings {
        healthy: report.is_clean(),
        jobs: report.jobs,
        events: report.events,
        log_rows: report.log_rows,
        dead_letters: report.letters,
        violations: report.violations.iter().map(finding).collect(),
        more: report.more,
    }
}
