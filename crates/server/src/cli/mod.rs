//! The command line: what a person types. Data goes to stdout, all else to stderr.

#[cfg(unix)]
mod api;
mod ask;
mod backup;
#[cfg(unix)]
mod bench;
mod completions;
#[cfg(unix)]
mod demo;
#[cfg(unix)]
mod dev;
#[cfg(unix)]
mod dlq;
#[cfg(unix)]
mod doctor;
mod exit;
mod explain;
#[cfg(unix)]
mod job;
mod json;
#[cfg(unix)]
mod keys;
#[cfg(unix)]
mod many;
#[cfg(unix)]
mod migrate;
mod output;
mod progress;
#[cfg(unix)]
mod queue;
#[cfg(unix)]
mod replay;
mod restore;
#[cfg(unix)]
mod schedule;
#[cfg(unix)]
mod screen;
#[cfg(unix)]
mod serve;
#[cfg(unix)]
mod serving;
mod store;
mod table;
mod times;
#[cfg(unix)]
mod token;
mod trouble;
mod view;
#[cfg(unix)]
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};

use self::{
    trouble::Trouble,
    view::{View, ViewArgs},
};

/// Windlass runs background work so that nothing accepted is lost.
#[derive(Parser)]
#[command(name = "windlass", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    view: ViewArgs,
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
    #[cfg(unix)]
    Dev(dev::Dev),
    #[cfg(unix)]
    Demo(demo::Demo),
    /// Make jobs, look at them, act on them.
    #[cfg(unix)]
    #[command(subcommand, visible_alias = "jobs")]
    Job(job::JobCommand),
    /// Look at dead letters, and decide what becomes of them.
    #[cfg(unix)]
    #[command(subcommand, visible_alias = "letter")]
    Dlq(dlq::DlqCommand),
    /// Look at queues, hold them back, limit what runs at once.
    #[cfg(unix)]
    #[command(subcommand, visible_alias = "queues")]
    Queue(queue::QueueCommand),
    /// Make jobs at their times: by cron, every so often, or once.
    #[cfg(unix)]
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(schedule::ScheduleCommand),
    /// Say what a state, an op or an error code means, and what to do next.
    Explain(explain::Explain),
    /// Check that store, schema, clock, disk, config and server are as they should be.
    #[cfg(unix)]
    Doctor(doctor::Doctor),
    /// Copy a database to a file, while it is served or not.
    Backup(backup::Backup),
    /// Put a backup in the place of a database that is not being served.
    Restore(restore::Restore),
    /// Show which steps the schema of a store has, and run those that it lacks.
    #[cfg(unix)]
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    #[cfg(unix)]
    Serve(serve::Serve),
    #[cfg(unix)]
    Worker(worker::Worker),
    /// Say who may come in from outside, and what for.
    #[cfg(unix)]
    #[command(subcommand)]
    Token(token::Token),
    #[cfg(unix)]
    Bench(bench::Bench),
    #[cfg(unix)]
    Replay(replay::Replay),
    Completions(completions::Completions),
    Man(completions::Man),
}

/// Runs the command and says how it went, as an exit code.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let view = View::new(&cli.view);
    let output = view.output;
    match cli.command {
        #[cfg(unix)]
        Command::Dev(command) => told(&view, dev::run(&command, &view)),
        #[cfg(unix)]
        Command::Demo(command) => block_on(&view, demo::run(&command, &view)),
        #[cfg(unix)]
        Command::Job(command) => block_on(&view, job::run(&command, &view)),
        #[cfg(unix)]
        Command::Dlq(command) => block_on(&view, dlq::run(&command, &view)),
        #[cfg(unix)]
        Command::Queue(command) => block_on(&view, queue::run(&command, &view)),
        #[cfg(unix)]
        Command::Schedule(command) => block_on(&view, schedule::run(&command, &view)),
        Command::Explain(command) => explain::run(&command, output),
        #[cfg(unix)]
        Command::Doctor(command) => block_on(&view, doctor::run(&command, &view)),
        Command::Backup(command) => backup::run(&command, output),
        Command::Restore(command) => restore::run(&command, output),
        #[cfg(unix)]
        Command::Serve(command) => told(&view, serve::run(&command)),
        #[cfg(unix)]
        Command::Worker(command) => told(&view, worker::run(&command, &view)),
        #[cfg(unix)]
        Command::Token(command) => block_on(&view, token::run(&command, &view)),
        #[cfg(unix)]
        Command::Bench(command) => bench::run(&command, output),
        #[cfg(unix)]
        Command::Replay(command) => block_on(&view, replay::run(&command, &view)),
        #[cfg(unix)]
        Command::Migrate(command) => block_on(&view, migrate::run(&command, &view)),
        Command::Completions(command) => {
            completions::completions(&command);
            ExitCode::SUCCESS
        }
        Command::Man(command) => match completions::man(&command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(trouble) => trouble.tell(output),
        },
    }
}

/// Runs a command to its end, and tells what went wrong.
fn block_on(view: &View, work: impl Future<Output = Result<(), Trouble>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::fail(exit::FAILED, &format!("cannot start: {error}")),
    };
    told(view, runtime.block_on(work))
}

/// How a command ended, as an exit code. What went wrong is told.
fn told(view: &View, ended: Result<(), Trouble>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => trouble.tell(view.output),
    }
}
