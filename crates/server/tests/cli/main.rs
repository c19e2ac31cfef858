//! What a person sees at the terminal: every command, with what it prints, written down as pages in `pages/`.

mod config;
mod dev;
mod doctor;
mod escapes;
mod follow;
mod hand;
mod help;
mod jobs;
mod keys;
mod letters;
mod migrations;
mod packaging;
mod place;
mod queues;
mod replays;
mod schedules;
mod schema;
#[path = "../serving/mod.rs"]
#[expect(dead_code, reason = "each test file uses what it needs of it")]
mod serving;
mod shell;
mod tokens;
mod top;
mod tour;
mod worker;
