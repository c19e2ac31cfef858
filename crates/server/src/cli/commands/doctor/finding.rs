//! What was found, for people and for programs.

use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::deep::Deep;
use crate::cli::{
    Output,
    look::{
        output,
        prose::wrapped,
        terminal::print,
        view::{DIM, View},
    },
    trouble::Trouble,
};

/// How one thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// As it should be.
    Ok,
    /// Worth knowing. It goes on as it is.
    Note,
    /// Somebody has to do something.
    Bad,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    pub(super) check: &'static str,
    pub(super) state: State,
    /// What was seen, in a sentence.
    pub(super) what: String,
    /// What to do about it.
    pub(super) remedy: Option<String>,
}

impl Check {
    pub(super) fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, state: State::Ok, what: what.into(), remedy: None }
    }

    pub(super) fn note(
        check: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, state: State::Note, what: what.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn bad(
        check: &'static str,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { check, state: State::Bad, what: what.into(), remedy: Some(remedy.into()) }
    }
}

/// Where sentences begin: behind the shape and the name of what was looked at.
const INDENT: usize = 11;

/// Everything that was found.
#[derive(Serialize)]
pub(super) struct Findings {
    healthy: bool,
    checks: Vec<Check>,
    /// What the whole history told, if it was read.
    #[serde(flatten)]
    deep: Option<Deep>,
}

impl Findings {
    pub(super) fn new(checks: Vec<Check>, deep: Option<Deep>) -> Self {
        let is_well = checks.iter().all(|check| check.state != State::Bad);
        let healthy = is_well && deep.as_ref().is_none_or(Deep::is_clean);
        Self { healthy, checks, deep }
    }

    pub(super) fn show(&self, view: &View) {
        match view.output {
            Output::Table => print(&self.text(view.width)),
            format => output::show(format, "", self),
        }
    }

    fn text(&self, width: usize) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
            let (shape, style) = match check.state {
                State::Ok => ("✓", color(AnsiColor::Green)),
                State::Note => ("!", color(AnsiColor::Yellow)),
                State::Bad => ("✗", color(AnsiColor::Red)),
            };
            let Check { check: name, what, remedy, .. } = check;
            let what = wrapped(what, INDENT, width);
            text.push_str(&format!("{style}{shape}{style:#} {name:<7}  {what}\n"));
            for line in remedy.iter().flat_map(|remedy| remedy.lines()) {
                let (blank, line) = (" ".repeat(INDENT), wrapped(line, INDENT + 2, width));
                text.push_str(&format!("{blank}{DIM}→{DIM:#} {line}\n"));
            }
        }
        match &self.deep {
            Some(deep) => text + "\n" + &deep.text(width),
            None => text,
        }
    }

    /// Something that somebody has to do makes the command fail.
    pub(super) fn verdict(&self) -> Result<(), Trouble> {
        if self.healthy {
            return Ok(());
        }
        let bad = self.checks.iter().filter(|check| check.state == State::Bad);
        let mut names: Vec<&str> = bad.map(|check| check.check).collect();
        names.dedup();
        if self.deep.as_ref().is_some_and(|deep| !deep.is_clean()) {
            names.push("history");
        }
        Err(Trouble::failed(format!("not everything is well: {}", names.join(", "))))
    }
}
