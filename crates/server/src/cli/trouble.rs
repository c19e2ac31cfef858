//! Trouble: what a command could not do. People are told what happened, to what, and what to type next; programs get
//! the problem document itself. Either goes to stderr.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::json;

use super::{
    Output, exit,
    look::terminal::{self, for_people},
    next::{self, About},
    store,
};

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Trouble {
    /// How it ends.
    pub(crate) exit: u8,
    /// What happened, to what.
    what: String,
    /// What to do about it.
    next: Vec<String>,
    /// The same for programs, if a server said it.
    problem: Option<String>,
}

/// What is read of a problem document.
#[derive(Deserialize)]
struct Told {
    detail: String,
    code: String,
    job_id: Option<String>,
}

impl Trouble {
    pub(crate) fn new(exit: u8, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), next: Vec::new(), problem: None }
    }

    /// The call itself is wrong.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self::new(exit::USAGE, what)
    }

    /// There is no such thing.
    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self::new(exit::NOT_FOUND, what)
    }

    /// It did not go well.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::new(exit::FAILED, what)
    }

    /// Nobody answers.
    pub(crate) fn unreachable(what: impl Into<String>) -> Self {
        Self::new(exit::UNREACHABLE, what)
    }

    /// With a sentence on what to do, or a command to type.
    pub(crate) fn then(mut self, next: impl Into<String>) -> Self {
        self.next.push(next.into());
        self
    }

    /// What happened.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// With several of them.
    fn then_all(self, next: Vec<String>) -> Self {
        next.into_iter().fold(self, Self::then)
    }

    /// What a server answered to a call of `path` instead of what was asked for.
    pub(crate) fn of_problem(status: u16, path: &str, body: &str) -> Self {
        let Ok(told) = serde_json::from_str::<Told>(&for_people(body)) else {
            let what = format!("the server answered with status {status} and no explanation");
            return Self::new(exit_of(status), what)
                .then("Is it a Windlass server? Look at what --server says.");
        };
        let about = About { path, detail: &told.detail, job: told.job_id.as_deref() };
        let mut what = format!("{} ({})", told.detail, told.code);
        if let Some(name) = about.name().filter(|name| !what.contains(name)) {
            what = format!("{name}: {what}");
        }
        let mut trouble = Self::new(exit_of(status), what).then_all(next::lines(&told.code, about));
        trouble.problem = Some(body.to_owned());
        trouble
    }

    /// What the store said instead of doing it.
    pub(crate) fn of_store(error: &windlass_store::Error) -> Self {
        Self::new(store::exit_of(error), exit::chain(error))
            .then_all(next::lines(error.code(), About::default()))
    }

    /// The store has stopped while it was served, so the process ends.
    pub(crate) fn of_stopped(error: &windlass_store::Error) -> Self {
        Self::failed(exit::chain(error)).then_all(next::lines(error.code(), About::default()))
    }

    /// Tells it, and says how to end.
    pub(crate) fn tell(&self, output: Output) -> ExitCode {
        match output {
            Output::Table => {
                let mut text = self.what.clone();
                for next in &self.next {
                    text.push('\n');
                    text.push_str(next);
                }
                exit::fail(self.exit, &text)
            }
            Output::Json | Output::Jsonl => {
                let own = || {
                    json!({"title": "The command failed.", "detail": self.what, "next": self.next})
                        .to_string()
                };
                terminal::say(&self.problem.clone().unwrap_or_else(own));
                ExitCode::from(self.exit)
            }
        }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

/// The exit code that means the same as a status.
fn exit_of(status: u16) -> u8 {
    match status {
        400 | 405 | 413 | 415 | 422 => exit::USAGE,
        401 | 403 => exit::DENIED,
        404 => exit::NOT_FOUND,
        409 | 410 | 412 => exit::CONFLICT,
        408 | 429 | 502..=504 => exit::UNREACHABLE,
        _ => exit::FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_to_do_and_how_to_end() {
        let body =
            r#"{"detail": "job j1 is succeeded", "code": "INVALID_TRANSITION", "job_id": "job_1"}"#;
        let trouble = Trouble::of_problem(409, "/api/v1/jobs/job_1/cancel", body);
        assert_eq!(trouble.exit, exit::CONFLICT);
        assert_eq!(trouble.what, "job_1: job j1 is succeeded (INVALID_TRANSITION)");
        assert_eq!(trouble.next.last().unwrap(), "Look at it: windlass job show job_1");
        assert_eq!(Trouble::of_problem(404, "/", "<html>").exit, exit::NOT_FOUND);
    }
}
