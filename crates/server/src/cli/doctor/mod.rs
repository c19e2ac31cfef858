//! `windlass doctor`: is everything as it should be? Each finding says what to do about it.
//!
//! First it is measured (`measure`), then it is judged (`judge`), so that every fault can be tried without being made.
//! Nothing is changed: a schema that is old stays old.

mod config;
mod deep;
mod finding;
mod judge;
mod measure;
mod server;

use std::{path::PathBuf, time::Duration};

use clap::Args;

use self::{
    deep::Deep,
    finding::{Check, Findings},
    measure::Measured,
};
use super::{
    api::{Api, ApiArgs},
    next::{self, About},
    progress,
    store::StoreName,
    trouble::Trouble,
    view::View,
};

#[derive(Args)]
pub(crate) struct Doctor {
    /// Read the whole history: every job, every event, every dead letter, against every rule.
    #[arg(long)]
    deep: bool,
    /// The config file of the server, to be checked with the rest.
    #[arg(long, env = "WINDLASS_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(crate) async fn run(command: &Doctor, view: &View) -> Result<(), Trouble> {
    let mut checks = Vec::new();
    let mut deep = None;
    match command.api.named_server() {
        // The store of a server that is named is behind it.
        Some(url) => checks.extend(server::look(&Api::at(url, &command.api)?).await),
        None => {
            let name = command.api.store().told()?;
            checks.extend(store(&name, &command.api).await);
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

/// What is to be said about a store, and about the server that has it open.
async fn store(name: &StoreName, args: &ApiArgs) -> Vec<Check> {
    let measured = match Measured::of(name).await {
        Ok(measured) => measured,
        Err(error) => {
            let what = super::exit::chain(&error);
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
