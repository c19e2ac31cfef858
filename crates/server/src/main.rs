//! The `windlass` binary: parse, dispatch, exit code.

mod cli;
#[cfg(unix)]
mod http;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::run(cli::Cli::parse())
}
