//! Variables that begin as ours do and are none of ours: a slip of the finger would else go unseen.
//!
//! Never true: that a command fails for one. Somebody may have variables of their own.

use std::{collections::BTreeSet, fs};

use clap::{Command, CommandFactory as _};

use super::{Cli, look::view::View, typed};
use crate::config::{Variables, variables};

/// What else there is: the log, what a program is told that runs for a job, and what our tests and scripts look at.
const OTHERS: &[&str] = &[
    "WINDLASS_LOG",
    "WINDLASS_LOG_FORMAT",
    "WINDLASS_JOB_ID",
    "WINDLASS_ATTEMPT",
    "WINDLASS_EXECUTION_KEY",
    "WINDLASS_TRACE_ID",
    "WINDLASS_BLESS",
    "WINDLASS_DEEP",
    "WINDLASS_SEED",
    "WINDLASS_SIMULATION_SEED",
    "WINDLASS_PG_BIN",
    "WINDLASS_PREVIOUS",
    "WINDLASS_PREVIOUS_COMMIT",
];

/// What begins so is of our tests.
const TESTS: [&str; 2] = ["WINDLASS_TEST_", "WINDLASS_RECORD_"];

/// Says which variables are none of ours. A command that does not read the config tells only those that look like a slip.
pub(super) fn warn(view: &View, reads_config: bool) {
    let variables = Variables::of_environment();
    let known = known();
    let config = if reads_config { config_file() } else { String::new() };
    for name in variables.names().filter(|name| !is_known(name, &known)) {
        // The file may name variables for its secrets.
        if config.contains(name) {
            continue;
        }
        let told = match nearest(name, &known) {
            Some(nearest) => format!("there is no variable {name}; did you mean {nearest}?"),
            None if reads_config => {
                format!(
                    "there is no variable {name}; windlass config init - says how they are named"
                )
            }
            None => continue,
        };
        view.say(&format!("windlass: {told}"));
    }
}

/// The config that was named, or nothing.
fn config_file() -> String {
    let typed = typed();
    let named = |id: &str| typed.try_get_raw(id).ok().flatten().and_then(|mut all| all.next());
    let path = named("config").or_else(|| named("file"));
    path.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default()
}

/// Every variable of a flag, of a key of the config, and what else there is.
fn known() -> BTreeSet<String> {
    let mut known: BTreeSet<String> = variables().collect();
    known.extend(OTHERS.iter().map(|name| (*name).to_owned()));
    of_flags(&Cli::command(), &mut known);
    known
}

fn of_flags(command: &Command, known: &mut BTreeSet<String>) {
    let names = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
    known.extend(names.map(str::to_owned));
    command.get_subcommands().for_each(|below| of_flags(below, known));
}

fn is_known(name: &str, known: &BTreeSet<String>) -> bool {
    known.contains(name) || TESTS.iter().any(|prefix| name.starts_with(prefix))
}

/// The known one that a slip of the finger would make into this.
fn nearest<'a>(name: &str, known: &'a BTreeSet<String>) -> Option<&'a str> {
    let distance = |it: &&String| strsim::damerau_levenshtein(name, it);
    let nearest = known.iter().min_by_key(distance)?;
    (distance(&nearest) <= 3).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_leads_to_the_name_that_was_meant() {
        let known = known();
        for (name, expected) in [
            ("WINDLASS_GRACE", Some("WINDLASS_GRACE_MS")),
            ("WINDLASS_SEVER", Some("WINDLASS_SERVER")),
            ("WINDLASS_ALERT_LEASE_CHURM", Some("WINDLASS_ALERTS_LEASE_CHURN")),
            ("WINDLASS_PAGER_SECRET", None),
        ] {
            assert!(!is_known(name, &known), "{name}");
            assert_eq!(nearest(name, &known), expected, "{name}");
        }
        for name in ["WINDLASS_TOKEN", "WINDLASS_TIME", "WINDLASS_TEST_CHILD", "WINDLASS_GRACE_MS"]
        {
            assert!(is_known(name, &known), "{name}");
        }
    }
}
