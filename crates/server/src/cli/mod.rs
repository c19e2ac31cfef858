//! The command line: what a person types. Data goes to stdout, all else to stderr.

mod api;
mod commands;
mod exit;
mod filter;
mod look;
mod many;
mod next;
mod place;
mod reload;
mod serving;
mod store;
mod trouble;
mod variables;

use std::process::ExitCode;

use clap::{
    ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum,
    parser::ValueSource,
};

use self::{
    commands::{
        backup, bench, completions, config, demo, dev, dlq, doctor, explain, job, migrate, queue,
        replay, restore, schedule, serve, token, top, worker,
    },
    look::{
        help,
        view::{View, ViewArgs},
    },
    trouble::Trouble,
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
    Dev(dev::Dev),
    Demo(demo::Demo),
    /// Make jobs, look at them, act on them.
    #[command(subcommand, visible_alias = "jobs")]
    Job(job::JobCommand),
    /// Look at dead letters, and decide what becomes of them.
    #[command(subcommand, visible_alias = "letter")]
    Dlq(dlq::DlqCommand),
    /// Look at queues, hold them back, limit what runs at once.
    #[command(subcommand, visible_alias = "queues")]
    Queue(queue::QueueCommand),
    /// Make jobs at their times: by cron, every so often, or once.
    #[command(subcommand, visible_alias = "schedules")]
    Schedule(schedule::ScheduleCommand),
    /// Say what a state, an op or an error code means, and what to do next.
    Explain(explain::Explain),
    /// Check that store, schema, clock, disk, config and server are as they should be.
    Doctor(doctor::Doctor),
    /// Copy a database to a file, while it is served or not.
    Backup(backup::Backup),
    /// Put a backup in the place of a database that is not being served.
    Restore(restore::Restore),
    /// Show which steps the schema of a store has, and run those that it lacks.
    #[command(subcommand)]
    Migrate(migrate::MigrateCommand),
    /// Make a config file, check it, and see what holds in the end.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    Serve(serve::Serve),
    Top(top::Top),
    Worker(worker::Worker),
    /// Say who may come in from outside, and what for.
    #[command(subcommand)]
    Token(token::Token),
    Bench(bench::Bench),
    Replay(replay::Replay),
    Completions(completions::Completions),
    Man(completions::Man),
}

impl Command {
    /// Does it read the config, with all that variables can say?
    fn reads_config(&self) -> bool {
        matches!(
            self,
            Command::Dev(_)
                | Command::Serve(_)
                | Command::Worker(_)
                | Command::Config(_)
                | Command::Doctor(_)
        )
    }
}

/// Reads what was typed. What cannot be understood is told, and ends the process.
pub(crate) fn parse() -> Cli {
    let typed = help::grouped(Cli::command()).get_matches();
    Cli::from_arg_matches(&typed).unwrap_or_else(|error| error.exit())
}

/// What was typed behind the last command.
fn typed() -> ArgMatches {
    let mut typed = Cli::command().get_matches();
    while let Some((_, below)) = typed.remove_subcommand() {
        typed = below;
    }
    typed
}

/// What flags and variables say about a setting, by its section and its key.
fn given() -> impl Fn(&str, &str) -> Option<(String, crate::config::Origin)> + Send {
    use crate::config::{Origin, Variables};
    let (typed, variables) = (typed(), Variables::of_environment());
    move |section, name| {
        if section != "server" {
            return Some((variables.get(section, name)?.to_owned(), Origin::Environment));
        }
        let text = typed.try_get_raw(name).ok()??.next()?.to_str()?.to_owned();
        match typed.value_source(name)? {
            ValueSource::CommandLine => Some((text, Origin::Flag)),
            ValueSource::EnvVariable => Some((text, Origin::Environment)),
            _ => None,
        }
    }
}

/// Runs the command and says how it went, as an exit code.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let view = View::new(&cli.view);
    let output = view.output;
    variables::warn(&view, cli.command.reads_config());
    match cli.command {
        Command::Dev(command) => told(&view, dev::run(&command, &view)),
        Command::Demo(command) => block_on(&view, demo::run(&command, &view)),
        Command::Job(command) => block_on(&view, job::run(&command, &view)),
        Command::Queue(command) => block_on(&view, queue::run(&command, &view)),
        Command::Schedule(command) => block_on(&view, schedule::run(&command, &view)),
        Command::Dlq(command) => block_on(&view, dlq::run(&command, &view)),
        Command::Explain(command) => explain::run(&command, &view),
        Command::Doctor(command) => block_on(&view, doctor::run(&command, &view)),
        Command::Backup(command) => told(&view, backup::run(&command, &view)),
        Command::Restore(command) => told(&view, restore::run(&command, &view)),
        Command::Serve(command) => told(&view, serve::run(&command)),
        Command::Top(command) => block_on(&view, top::run(&command, &view)),
        Command::Worker(command) => told(&view, worker::run(&command, &view)),
        Command::Token(command) => block_on(&view, token::run(&command, &view)),
        Command::Bench(command) => bench::run(&command, &view),
        Command::Replay(command) => block_on(&view, replay::run(&command, &view)),
        Command::Migrate(command) => block_on(&view, migrate::run(&command, &view)),
        Command::Config(command) => match config::run(&command, &view) {
            Ok(()) => ExitCode::SUCCESS,
            Err(trouble) => trouble.tell(output),
        },
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
