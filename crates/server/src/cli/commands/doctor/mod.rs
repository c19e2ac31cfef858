//! `windlass doctor`: is everything as it should be? Each finding says what to do about it.
//!
//! First it is measured (`measure`), then it is judged (`judge`), so that every fault can be tried without being made.
//! Nothing is changed, a schema that is old stays old; but for what `--mend` names.

mod config;
mod deep;
mod finding;
mod judge;
mod measure;
mod mend;
mod server;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use self::{
    deep::Deep,
    finding::{Check, Findings},
    measure::Measured,
};
use crate::cli::{
    api::{Api, ApiArgs},
    look::{progress, view::View},
    next::{self, About},
    place::Place,
    store::StoreName,
    trouble::Trouble,
};

#[derive(Args)]
#[command(after_help = "\
    It ends with 0 if nothing has to be done, and with 1 if something has. Alerts of a server are shown, and do not count:\n\
    they come and go with the work. What cannot be looked at ends it as every command does.")]
pub(crate) struct Doctor {
    /// Read the whole history: every job, every event, every dead letter, against every rule.
    #[arg(long)]
    deep: bool,
    /// Put something right: clock says that a clock which jumped ahead is right, so the store follows it.
    #[arg(long, value_enum, value_name = "WHAT")]
    mend: Option<Mend>,
    /// Why it is mended, for those who will ask.
    #[arg(short, long, value_name = "TEXT", requires = "mend")]
    reason: Option<String>,
    /// The config file of the server, to be checked with the rest.
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArgs,
}

/// What can be mended.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mend {
    /// The clock that the store follows.
    Clock,
}

pub(crate) async fn run(command: &Doctor, view: &View) -> Result<(), Trouble> {
    if let Some(Mend::Clock) = command.mend {
        return mend::clock(&command.api, command.reason.as_deref(), view).await;
    }
    let mut checks = Vec::new();
    let mut deep = None;
    let mut api = command.api.clone();
    if let Some(store) = config::store(command.config.as_deref()) {
        api.or_store(&store);
    }
    match api.place() {
        Place::Server(url) if command.deep => return Err(not_deep(url)),
        // The store of a server that is named is behind it.
        Place::Server(url) => checks.extend(server::look(&Api::at(url, &api)?).await),
        Place::Store(named) => {
            let name = named.told()?;
            checks.extend(store(&name, &api).await);
            if command.deep {
                let bar = progress::bar("{spinner} reading every job and every event: {elapsed}");
                bar.enable_steady_tick(Duration::from_millis(100));
                deep = Some(deep::check(&name).await);
                bar.finish_and_clear();
            }
        }
    }
    checks.extend(config::look(command.config.as_deref()));
    let (deep, broken) = match deep {
        Some(Err(error)) => (None, Some(Trouble::of_store(&error))),
        Some(Ok(report)) => (Some(Deep::new(report)), None),
        None => (None, None),
    };
    let findings = Findings::new(checks, deep);
    findings.show(view);
    match broken {
        Some(trouble) => Err(trouble),
        None => findings.verdict(),
    }
}

/// A server has no call that reads its whole history.
fn not_deep(url: &str) -> Trouble {
    let what = format!("--deep reads the store itself, and {url} is a server");
    Trouble::usage(what)
        .then("Name its store, also while it runs: windlass doctor --deep --store sqlite:FILE")
        .then("Or with PostgreSQL: windlass doctor --deep --store postgres://HOST/DATABASE")
}

/// What is to be said about a store, and about the server that has it open.
async fn store(name: &StoreName, args: &ApiArgs) -> Vec<Check> {
    let measured = match Measured::of(name).await {
        Ok(measured) => measured,
        Err(error) => {
            let what = crate::cli::exit::chain(&error);
            let next = next::lines(error.code(), About::default());
            return vec![Check::bad("store", what, next.join("\n"))];
        }
    };
    let mut checks = judge::all(&measured);
    let address = measured.survey.owner.as_ref().and_then(|owner| owner.address.as_deref());
    if let Some(api) = address.and_then(|address| Api::at(address, args).ok()) {
        checks.extend(server::look(&api).await);
    }
    checks
}
