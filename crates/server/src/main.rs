//! The `windlass` binary: parse, dispatch, exit code.

mod cli;
mod config;
mod demo;
mod executors;
mod http;
mod traces;
mod webhooks;

#[cfg(not(unix))]
compile_error!("the windlass binary needs the signals, locks and processes of a Unix system");

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run(cli::parse())
}
