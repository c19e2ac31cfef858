//! `windlass explain`: what a word of Windlass means. It reads the rules themselves, so it is never out of date.

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use windlass_kernel::{
    Cause, Failure, OpKind, Refusal, State,
    machine::{MOVES, NOTES},
    refusal::CodeInfo,
};

use crate::cli::{
    Output, exit,
    look::{output, prose::wrapped, view::View},
    next::{self, About},
};

#[derive(Args)]
pub(crate) struct Explain {
    /// A state (running), a cause (lease_expired), an op (settle) or an error code (STALE_ATTEMPT).
    /// Without a word, all of them are listed.
    word: Option<String>,
}

/// What one word means.
#[derive(Serialize)]
struct Meaning {
    word: &'static str,
    is: &'static str,
    means: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
    /// What to type, if it is an error code.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moves: Vec<Step>,
}

/// One move that the word has a part in.
#[derive(Serialize)]
struct Step {
    from: &'static str,
    cause: &'static str,
    to: &'static str,
}

pub(crate) fn run(command: &Explain, view: &View) -> ExitCode {
    let known = meanings();
    let Some(word) = &command.word else {
        output::print(&shown(&known, view, listed));
        return ExitCode::SUCCESS;
    };
    // `scheduled` is a state and a cause: whatever bears the name is explained.
    let found: Vec<Meaning> =
        known.into_iter().filter(|known| known.word.eq_ignore_ascii_case(word)).collect();
    if found.is_empty() {
        return exit::fail(exit::NOT_FOUND, &unknown(word));
    }
    output::print(&shown(&found, view, told));
    ExitCode::SUCCESS
}

/// Everything that can be explained.
fn meanings() -> Vec<Meaning> {
    let plain =
        |word, is, means| Meaning { word, is, means, remedy: None, next: None, moves: Vec::new() };
    let states = State::ALL.iter().map(|state| Meaning {
        moves: steps(|step| step.from == state.as_str() || step.to == state.as_str()),
        ..plain(state.as_str(), "state", state.meaning())
    });
    let causes = Cause::ALL.iter().map(|cause| Meaning {
        moves: steps(|step| step.cause == cause.as_str()),
        ..plain(cause.as_str(), "cause", cause.meaning())
    });
    let ops = OpKind::ALL.iter().map(|op| plain(op.as_str(), "op", op.meaning()));
    let codes = codes().map(|info| Meaning {
        remedy: Some(info.remedy),
        next: next::lines(info.code, About::default()).pop().filter(|next| next != info.remedy),
        ..plain(info.code, "error code", info.meaning)
    });
    states.chain(causes).chain(ops).chain(codes).collect()
}

/// Every error code.
pub(crate) fn codes() -> impl Iterator<Item = &'static CodeInfo> {
    let tables =
        [Refusal::CODES, Failure::CODES, windlass_store::Error::CODES, crate::http::PROBLEM_CODES];
    tables.into_iter().flatten()
}

fn steps(wanted: impl Fn(&Step) -> bool) -> Vec<Step> {
    let moves = MOVES.iter().map(|step| Step {
        from: step.from.map_or("new", State::as_str),
        cause: step.cause.as_str(),
        to: step.to.as_str(),
    });
    let notes = NOTES.iter().map(|(state, cause)| Step {
        from: state.as_str(),
        cause: cause.as_str(),
        to: state.as_str(),
    });
    moves.chain(notes).filter(wanted).collect()
}

/// What the words mean, with all there is to know.
fn told(found: &[Meaning], width: usize) -> String {
    let mut text = String::new();
    for meaning in found {
        let sentence = format!("{} ({}): {}", meaning.word, meaning.is, meaning.means);
        text.push_str(&format!("{}\n", wrapped(&sentence, 0, width)));
        if let Some(remedy) = meaning.remedy {
            text.push_str(&format!("  {}\n", wrapped(&format!("What to do: {remedy}"), 2, width)));
        }
        if let Some(next) = &meaning.next {
            text.push_str(&format!("  {next}\n"));
        }
        for Step { from, cause, to } in &meaning.moves {
            text.push_str(&format!("  {from:<16} {cause:<26} -> {to}\n"));
        }
    }
    text
}

/// How wide the column of words is.
const WORD_WIDTH: usize = 26;

/// Where there is less room than this, a meaning stands below its word.
const NARROW: usize = 80;

/// Every word with its meaning, by what it is.
fn listed(known: &[Meaning], width: usize) -> String {
    let mut text = String::new();
    let mut section = "";
    for meaning in known {
        if meaning.is != section {
            section = meaning.is;
            let gap = if text.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{section}s\n"));
        }
        let word = meaning.word;
        if width < NARROW {
            text.push_str(&format!("  {word}\n    {}\n", wrapped(meaning.means, 4, width)));
        } else {
            let means = wrapped(meaning.means, WORD_WIDTH + 3, width);
            text.push_str(&format!("  {word:<WORD_WIDTH$} {means}\n"));
        }
    }
    text
}

/// The words for programs, or for people in the way they are shown.
fn shown(meanings: &[Meaning], view: &View, for_people: fn(&[Meaning], usize) -> String) -> String {
    let json = |meaning| serde_json::to_string(meaning).expect("words are plain data") + "\n";
    match view.output {
        Output::Table => for_people(meanings, view.width),
        Output::Json => {
            serde_json::to_string_pretty(meanings).expect("words are plain data") + "\n"
        }
        Output::Jsonl => meanings.iter().map(json).collect(),
    }
}

/// The message for a word that is none of ours, with those that come close.
fn unknown(word: &str) -> String {
    let mut close: Vec<&str> = meanings().iter().map(|known| known.word).collect();
    close.retain(|known| strsim::jaro_winkler(&known.to_lowercase(), &word.to_lowercase()) > 0.85);
    close.dedup();
    let next = match close.as_slice() {
        [] => "Type `windlass explain` to list every word.".to_owned(),
        close => format!("Did you mean {}?", close.join(" or ")),
    };
    format!("nothing in Windlass is called {word:?}.\n{next}")
}
