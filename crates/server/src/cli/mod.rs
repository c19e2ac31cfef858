//! The command line: what a person types. Data goes to stdout, all else to stderr.

mod backup;
#[cfg(unix)]
mod bench;
mod doctor;
mod exit;
mod explain;
mod output;
mod progress;
mod restore;
#[cfg(unix)]
mod serve;
mod store;
#[cfg(unix)]
mod token;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

/// Windlass runs background work so that nothing accepted is lost.
#[derive(Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// How results are written: for people, or for programs.
    #[arg(short, long, global = true, value_enum, default_value_t, env = "WINDLASS_OUTPUT")]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Output {
    /// Text for people.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One JSON document a line, one line a thing.
    Jsonl,
}

#[derive(Subcommand)]
enum Command {
    /// Say what a state, an op or an error code means, and what to do next.
    Explain(explain::Explain),
    /// Check that a database is as it should be.
    Doctor(doctor::Doctor),
    /// Copy a database to a file, while it is served or not.
    Backup(backup::Backup),
    /// Put a backup in the place of a database that is not being served.
    Restore(restore::Restore),
    #[cfg(unix)]
    Serve(serve::Serve),
    /// Say who may come in from outside, and what for.
    #[cfg(unix)]
    #[command(subcommand)]
    Token(token::Token),
    #[cfg(unix)]
    Bench(bench::Bench),
}

/// Runs the command and says how it went, as an exit code.
pub(crate) fn run(cli: Cli) -> ExitCode {
    match cli.command {
        Command::Explain(command) => explain::run(&command, cli.output),
        Command::Doctor(command) => doctor::run(&command, cli.output),
        Command::Backup(command) => backup::run(&command, cli.output),
        Command::Restore(command) => restore::run(&command, cli.output),
        #[cfg(unix)]
        Command::Serve(command) => serve::run(&command),
        #[cfg(unix)]
        Command::Token(command) => token::run(&command, cli.output),
        #[cfg(unix)]
        Command::Bench(command) => bench::run(&command, cli.output),
    }
}
