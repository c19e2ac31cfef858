//! The config file: can it be read, is every key known, and who else may read and write it?

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::Check;
use crate::config::{Config, ServerArgs, has_secret};

/// What is to be said about the file. None, if none is named: then there is nothing to check.
pub(super) fn look(path: Option<&Path>) -> Vec<Check> {
    let Some(path) = path else { return Vec::new() };
    if let Err(why) = Config::load(&ServerArgs::of_file(Some(path.to_owned()))) {
        let mut lines = why.lines();
        let what = lines.next().unwrap_or_default().to_owned();
        let remedy = lines.next().unwrap_or("Mend that line. What is missing has its usual value.");
        return vec![Check::bad("config", what, remedy)];
    }
    let mode = fs::metadata(path).map_or(0, |found| found.permissions().mode());
    let has_secret = fs::read_to_string(path).is_ok_and(|text| has_secret(&text));
    let shown = path.display();
    match (mode & 0o022, mode & 0o044) {
        (0, 0) => {}
        (0, _) if !has_secret => {}
        (0, _) => {
            let what = format!("{shown} has a secret in it, and others can read it");
            return vec![Check::note("config", what, format!("chmod go-rwx {shown}"))];
        }
        _ => {
            let what = format!("{shown} can be written by others, who could then run commands");
            return vec![Check::bad("config", what, format!("chmod go-w {shown}"))];
        }
    }
    vec![Check::ok("config", format!("{shown} can be used"))]
}

/// The store that the file names, or the default, if the file can be used.
pub(super) fn store(path: Option<&Path>) -> Option<String> {
    let config = Config::load(&ServerArgs::of_file(Some(path?.to_owned()))).ok()?;
    Some(config.server.store)
}
