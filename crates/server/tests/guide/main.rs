//! The README and the guide do what they say: every command in them is run, and what it prints is compared with what the
//! page shows.
//!
//! A page is played from top to bottom in a folder of its own, as a reader would who copies each block. What a block is,
//! its language says, and a comment on the line above it:
//!
//! | block | what becomes of it |
//! |---|---|
//! | `console` | each line after `$ ` is run, and prints the lines below it |
//! | `sh` | is run as a whole; it must succeed |
//! | `json` | the answer of the block above has all of this |
//! | `<!-- runs: background -->` | stays until the page ends, or until `kill $!`; what is shown is printed before the page goes on |
//! | `<!-- runs: until it prints this -->` | is run again until it does |
//! | `<!-- runs: not here, REASON -->` | is not run |
//! | `<!-- file: NAME -->` | is a file in the folder of the reader |
//! | `<!-- from: PATH -->` | is made of pieces of a file in this repository |
//!
//! A block that is none of these fails its page. A line `...` stands for any lines, and `…` for anything in a line. An id
//! that is shown stands for one id all over the page, a time for any time, a duration for any duration. A command that
//! fails fails the page, unless `$ echo $?` follows. `WINDLASS_BLESS=1` writes what was printed into the page.

#![cfg(unix)]

mod compare;
mod inline;
mod page;
mod play;
#[path = "../cli/shell.rs"]
#[expect(dead_code, reason = "a page of the guide has no page of its own")]
mod shell;
mod stage;

use std::{collections::BTreeSet, fs};

/// A test for each page, and the list of them.
macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(#[test]
        fn $name() {
            play::play($path, &[]);
        })*

        const PAGES: &[&str] = &[$($path),*];
    };
}

pages! {
    readme: "README.md",
    ladder: "docs/guide/README.md",
    install: "docs/guide/install.md",
    first_job: "docs/guide/first-job.md",
    retries: "docs/guide/retries.md",
    workers: "docs/guide/workers.md",
    executors: "docs/guide/executors.md",
    schedules_and_limits: "docs/guide/schedules-and-limits.md",
    testing: "docs/guide/testing.md",
    postgres: "docs/guide/postgres.md",
    operating: "docs/guide/operating.md",
    webhooks: "docs/guide/webhooks.md",
    traces: "docs/guide/traces.md",
    coming_from: "docs/guide/coming-from.md",
}

/// Whoever writes a worker need not know which store there is.
#[test]
fn workers_on_postgres() {
    play::play("docs/guide/workers.md", &[("sqlite:try.db", stage::POSTGRES)]);
}

#[test]
fn every_page_is_played() {
    let played: BTreeSet<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    let mut there = BTreeSet::from(["README.md".to_owned()]);
    for file in fs::read_dir(page::root().join("docs/guide")).expect("the guide is there") {
        let name = file.expect("it can be read").file_name().into_string().expect("plain names");
        there.insert(format!("docs/guide/{name}"));
    }
    assert_eq!(played, there);
}

#[test]
fn every_link_leads_somewhere() {
    PAGES.iter().for_each(|page| inline::check_links(page));
}

#[test]
fn every_command_in_the_text_exists() {
    PAGES.iter().for_each(|page| inline::check_commands(page));
}
