//! The `windlass` binary: parse, dispatch, exit code.

mod cli;
#[cfg(unix)]
mod config;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod executors;
#[cfg(unix)]
mod http;
#[cfg(unix)]
mod webhooks;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
