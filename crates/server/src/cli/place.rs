//! Which Windlass a command is about: a server, or a store.
//!
//! Precedence: flag, environment variable, config file (for the commands that read one), default. `--server` and
//! `--store` together contradict each other and are refused. With both variables set, `WINDLASS_SERVER` counts:
//! `WINDLASS_STORE` is often there for `windlass serve` on the same machine.

use clap::{ArgMatches, Args, Command, FromArgMatches, error::ErrorKind, parser::ValueSource};

use super::store::StoreArg;

/// Where the calls of a command go.
#[derive(Clone)]
pub(crate) enum Place {
    /// To this server.
    Server(String),
    /// To whoever has this store open, or to the store itself.
    Store(StoreArg),
}

/// The place that was named, and whether anybody named it.
#[derive(Clone)]
pub(crate) struct PlaceArgs {
    pub(crate) place: Place,
    /// Neither a flag nor a variable says where: a config file may.
    pub(crate) is_default: bool,
}

/// The flags and their variables.
#[derive(Args)]
struct Flags {
    /// The server to talk to, such as http://127.0.0.1:7117. Without it, the one that has the store open is found.
    #[arg(
        long,
        env = "WINDLASS_SERVER",
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Where"
    )]
    server: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

impl PlaceArgs {
    fn choose(flags: Flags, typed: &ArgMatches) -> Result<Self, clap::Error> {
        let is_flag = |id| typed.value_source(id) == Some(ValueSource::CommandLine);
        let Flags { server, store } = flags;
        if is_flag("server") && is_flag("store") {
            let what = "--server and --store name two places\nLeave one of them out.\n";
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, what));
        }
        // A variable that is empty is not set.
        let server = server.filter(|url| is_flag("server") || !url.is_empty());
        let is_default = match typed.value_source("store") {
            Some(ValueSource::CommandLine) => false,
            Some(ValueSource::EnvVariable) => store.store.is_empty(),
            _ => true,
        };
        let store = if is_default { StoreArg::default() } else { store };
        Ok(match server {
            Some(url) if !is_flag("store") => Self { place: Place::Server(url), is_default: false },
            _ => Self { place: Place::Store(store), is_default },
        })
    }
}

impl Default for PlaceArgs {
    fn default() -> Self {
        Self { place: Place::Store(StoreArg::default()), is_default: true }
    }
}

impl FromArgMatches for PlaceArgs {
    fn from_arg_matches(typed: &ArgMatches) -> Result<Self, clap::Error> {
        Self::choose(Flags::from_arg_matches(typed)?, typed)
    }

    fn update_from_arg_matches(&mut self, typed: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(typed)?;
        Ok(())
    }
}

impl Args for PlaceArgs {
    fn augment_args(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Flags::augment_args_for_update(command)
    }
}
