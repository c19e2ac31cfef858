//! `windlass bench`: how fast this machine is with Windlass, and how near that is to what the database can do.
//!
//! Always true here: every write takes the road of all writes, through the Committer, and counts only when
//! it is durable. What is prepared is not timed. A database that was there before is never touched.
//!
//! Where to start: `options` is what a person types, `run` is one run, a file for each workload is what is
//! timed, and `yardstick` is what it is compared with.

mod bulk;
mod counted;
mod drain;
mod enqueue;
mod error;
mod http;
mod latency;
mod load;
mod measure;
mod noop;
mod number;
mod options;
mod place;
mod progress;
mod report;
mod rig;
mod run;
mod times;
mod yardstick;

use std::process::ExitCode;

use tokio::runtime::Runtime;

pub(crate) use self::options::Bench;
use self::{error::Error, options::Plan, place::Place, progress::Progress, report::Document};
use crate::cli::{
    exit,
    look::{terminal, view::View},
};

pub(crate) fn run(command: &Bench, view: &View) -> ExitCode {
    if cfg!(debug_assertions) {
        terminal::say(
            "windlass: this is a debug build; only `cargo run --release` says how fast it is.",
        );
    }
    if let Some(plan) = command.http() {
        return match http::run(&plan, view) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => exit::fail(error.exit_code(), &error.told()),
        };
    }
    match all_runs(command) {
        Ok((plan, documents)) => {
            terminal::print(&report::shown(&plan, &documents, view));
            ExitCode::SUCCESS
        }
        Err(error) => exit::fail(error.exit_code(), &error.told()),
    }
}

fn all_runs(command: &Bench) -> Result<(Plan, Vec<Document>), Error> {
    let place = Place::parse(command.store())?;
    let plan = command.plan(place.kind())?;
    if plan.yardstick.is_some() && matches!(place, Place::Server(_)) {
        let why = "the yardstick is a loop on SQLite, and says nothing about a server.\n\
                   Leave out --yardstick.";
        return Err(Error::Usage(why.to_owned()));
    }
    place.refuse_what_is_there()?;
    let runtime = Runtime::new().map_err(Error::Runtime)?;
    let progress = Progress::new();
    progress.stop_on_signal(&runtime)?;
    let mut documents = Vec::new();
    for number in 0..plan.runs {
        if number > 0 {
            place.remove_last_run()?;
        }
        documents.push(one_run(&plan, &place, &runtime, &progress)?);
    }
    Ok((plan, documents))
}

/// The workload and then the yardstick, if it is wanted, on the same disk. In this order, because what the
/// allocator keeps of the one counts as memory of the other.
fn one_run(
    plan: &Plan,
    place: &Place,
    runtime: &Runtime,
    progress: &Progress,
) -> Result<Document, Error> {
    let site = place.site()?;
    let measured = runtime.block_on(async {
        let measured = run::run(plan, site.database(), progress).await;
        let removed = site.database().remove().await;
        let measured = measured?;
        removed.map(|()| measured)
    })?;
    let limit = match plan.yardstick {
        Some(kind) => Some(yardstick::run(kind, plan, &site.yardstick(), progress)?),
        None => None,
    };
    Ok(Document::new(plan, &measured, limit))
}
