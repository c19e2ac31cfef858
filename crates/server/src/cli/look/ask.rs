//! A question before something dangerous. Where nobody can answer it is an error, and never a wait.

use std::io::{self, BufRead as _, IsTerminal as _};

use crate::cli::{
    look::{terminal, view::View},
    trouble::Trouble,
};

/// Lets the person confirm. `--yes` has confirmed already.
pub(crate) fn confirm(view: &View, question: &str) -> Result<(), Trouble> {
    if view.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let what = format!("{question} Nobody is here to answer that, so nothing was done.");
        return Err(Trouble::usage(what).then("Add --yes to do it without being asked."));
    }
    terminal::ask(&format!("{question} [y/N] "));
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Trouble::failed("not confirmed, so nothing was done")),
    }
}
