//! The configuration of a server: one TOML file, below the variables, below the flags.
//!
//! Always true here: a value that was read is within its bounds, and what cannot be used is refused with the line it stands
//! on, the key, and what to do. A key that nobody knows is an error. No message shows a value that may be a secret.

mod exposed;
mod keys;
mod origins;
mod read;
mod sections;
mod server;
mod variables;

pub(crate) use self::{
    exposed::{has_secret, warn_of_readers},
    keys::template,
    origins::{Entry, Origin, entries},
    sections::{
        Alerts, AllowedCommand, EventFilter, Executors, HttpExecutor, Secret, Traces, Webhook,
    },
    server::{LISTEN_DEFAULT, Server, ServerArgs},
    variables::{Variables, variable, variables},
};

use std::{fs, path::Path};

use serde::Deserialize;

use self::{read::explain, server::ServerSection};

/// How a server is set up.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) executors: Executors,
    pub(crate) webhooks: Vec<Webhook>,
    pub(crate) alerts: Alerts,
    pub(crate) traces: Traces,
}

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct File {
    server: ServerSection,
    executors: Executors,
    webhooks: Vec<Webhook>,
    alerts: Alerts,
    traces: Traces,
}

impl Config {
    /// Reads what the flags and the environment say, and the file that they name. The error says what to do.
    pub(crate) fn load(args: &ServerArgs) -> Result<Self, String> {
        let variables = Variables::of_environment();
        let Some(path) = &args.config else { return Self::of(args, variables.above("")?) };
        let text = fs::read_to_string(path).map_err(|error| {
            format!("cannot read {}: {error}.\nName a file with --config FILE.", path.display())
        })?;
        Self::parse(args, &variables, path, &text)
    }

    fn parse(
        args: &ServerArgs,
        variables: &Variables,
        path: &Path,
        text: &str,
    ) -> Result<Self, String> {
        let named = |why: String| format!("{}: {why}", path.display());
        // As it stands, so that what is wrong with it has its line.
        let _: File = toml::from_str(text).map_err(|error| {
            let (line, why) = explain(text, &error);
            format!("{}, line {line}: {why}", path.display())
        })?;
        Self::of(args, variables.above(text)?).map_err(named)
    }

    fn of(args: &ServerArgs, file: File) -> Result<Self, String> {
        let File { server, executors, webhooks, alerts, traces } = file;
        executors.check()?;
        for (place, webhook) in webhooks.iter().enumerate() {
            webhook.check()?;
            if webhooks[..place].iter().any(|other| other.name == webhook.name) {
                let name = &webhook.name;
                return Err(format!("webhooks: there are two called {name}; rename one"));
            }
        }
        if let Some(name) = &alerts.webhook
            && !webhooks.iter().any(|webhook| webhook.name == *name)
        {
            return Err(format!("alerts: no webhook is called {name}; add it as [[webhooks]]"));
        }
        let mut server = server.under(args)?;
        server.settings.alerts = alerts.thresholds();
        Ok(Self { server, executors, webhooks, alerts, traces })
    }
}

#[cfg(test)]
mod tests;
