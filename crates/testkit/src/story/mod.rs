//! Stories: what must happen to a job, told in lines that a newcomer can read.
//!
//! ```text
//! # A worker that lost its lease cannot settle.
//! enqueue  j1                        -> queued
//! claim    j1  by w1                 -> dispatched   epoch 1
//! start    j1  epoch 1               -> running
//! pass     60s                       -> interrupted
//! claim    j1  by w2                 -> dispatched   epoch 2
//! settle   j1  epoch 1  succeeded    -> refused STALE_ATTEMPT
//! ```
//!
//! One line is one op: a verb, a job, then words and values; after the arrow a state or a refusal, then
//! fields. A line without an arrow must not be refused. Each story has an empty world of its own, and
//! the same stories run on every store. They live in `stories/`, one file for each topic, beside a
//! `README.md` with all verbs and fields.

mod check;
mod contract;
mod deed;
mod expect;
mod ops;
mod parse;
mod run;
mod step;
mod words;

use std::{fs, path::PathBuf};

pub use self::{
    parse::{Error, Line, Story, parse},
    run::{Failure, run},
    words::Name,
};
use crate::World;

/// The names of all story files, in order.
///
/// # Panics
/// If the folder cannot be read.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the folder of stories can be read");
    let files = entries.map(|entry| entry.expect("a story can be found").path());
    let stories = files.filter(|path| path.extension().is_some_and(|ext| ext == "story"));
    let stem = |path: PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let mut names: Vec<String> = stories.filter_map(stem).collect();
    names.sort();
    names
}

/// Lives through all stories of a file, each in a world of its own, and prints what they show.
///
/// # Panics
/// If a line cannot be read or does not go as its story says; the message has the file and the line.
pub fn check<W: World>(name: &str, new_world: impl Fn() -> W) {
    let file = format!("{name}.story");
    let text = fs::read_to_string(folder().join(&file)).expect("the story can be read");
    let stories = parse(&text).unwrap_or_else(|error| panic!("\n{file}:{error}\n"));
    for story in &stories {
        match run(story, &mut new_world()) {
            Ok(shown) => shown.iter().for_each(|line| println!("{name}: {line}")),
            Err(failure) => panic!("\n{file}:{failure}\n  in the story: {}\n", story.title),
        }
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("stories")
}

/// One test for each story file, and one that no file is left out. Takes what makes an empty world.
#[macro_export]
macro_rules! story_tests {
    ($new_world:expr) => {
        $crate::story_tests!(@ $new_world;
            rp_001 rp_002 rp_003 rp_004 rp_005 runs_edges tasks_attempts idempotency lease cancel
            interruption wait ledger dead_letters rerun timeouts schedule);
    };
    (@ $new_world:expr; $($name:ident)*) => {
        $(#[test]
        fn $name() {
            $crate::story::check(stringify!($name), $new_world);
        })*

        #[test]
        fn every_story_is_run() {
            let mut run = vec![$(stringify!($name)),*];
            run.sort_unstable();
            assert_eq!(run, $crate::story::names());
        }
    };
}
