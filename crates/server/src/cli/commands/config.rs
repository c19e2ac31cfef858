//! `windlass config`: make a config file, check it, and see what holds in the end.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::PathBuf,
};

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::{
    Output, exit, given,
    look::{
        output,
        terminal::print,
        view::{DIM, View},
    },
    trouble::Trouble,
};
use crate::config::{self, Entry, Origin, ServerArgs};

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Write a config file that says nothing, with all that could be said.
    Init(Init),
    /// Say whether a config file can be used, and if not, what is wrong on which line.
    Check(Check),
    /// Show what holds in the end, from flags, variables, file and defaults.
    Show(Box<Show>),
}

#[derive(Args)]
pub(crate) struct Init {
    /// The file, or - for standard output.
    #[arg(default_value = "windlass.toml")]
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct Check {
    /// The file.
    #[arg(env = "WINDLASS_CONFIG", default_value = "windlass.toml")]
    file: PathBuf,
}

#[derive(Args)]
pub(crate) struct Show {
    /// Say where each value comes from: a flag, a variable, a line of the file, or nowhere.
    #[arg(long)]
    origins: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// A key for programs.
#[derive(Serialize)]
struct Shown {
    section: String,
    key: String,
    value: Option<toml::Value>,
    /// What sets it besides the file, if something can.
    variable: Option<String>,
    /// `flag`, `environment`, `file` or `default`.
    origin: &'static str,
    line: Option<usize>,
    /// Is it read again on SIGHUP?
    reloads: bool,
}

#[derive(Serialize)]
struct List {
    items: Vec<Shown>,
    next: Option<String>,
}

pub(crate) fn run(command: &ConfigCommand, view: &View) -> Result<(), Trouble> {
    match command {
        ConfigCommand::Init(command) => init(command, view),
        ConfigCommand::Check(command) => check(command, view),
        ConfigCommand::Show(command) => show(command, view),
    }
}

fn init(command: &Init, view: &View) -> Result<(), Trouble> {
    let (path, shown) = (&command.file, command.file.display());
    if path.as_os_str() == "-" {
        print(&config::template());
        return Ok(());
    }
    // It may get secrets, so it is nobody else's.
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(config::template().as_bytes()));
    written.map_err(|why| match why.kind() {
        io::ErrorKind::AlreadyExists => {
            Trouble::new(exit::CONFLICT, format!("{shown} is there already"))
                .then("Name another file, or see what could stand in it: windlass config init -")
        }
        _ => Trouble::failed(format!("cannot write {shown}: {why}")),
    })?;
    view.say(&format!("{shown} is written. Use it with: windlass serve --config {shown}"));
    Ok(())
}

fn check(command: &Check, view: &View) -> Result<(), Trouble> {
    if !command.file.exists() {
        let what = format!("there is no file {}", command.file.display());
        return Err(Trouble::not_found(what).then("Make one with: windlass config init"));
    }
    let load = config::Config::load(&ServerArgs::of_file(Some(command.file.clone())));
    load.map_err(|why| {
        let mut lines = why.lines();
        let trouble = Trouble::usage(lines.next().unwrap_or_default());
        lines.fold(trouble, Trouble::then)
    })?;
    view.say(&format!("{} can be used.", command.file.display()));
    Ok(())
}

fn show(command: &Show, view: &View) -> Result<(), Trouble> {
    config::Config::load(&command.server).map_err(Trouble::usage)?;
    let file = command.server.config.as_ref().map(fs::read_to_string);
    let file = file.and_then(Result::ok).unwrap_or_default();
    let entries = config::entries(given(), &file);
    let items: Vec<Shown> = entries.iter().map(Shown::from).collect();
    match view.output {
        Output::Table => print(&text(&entries, command.origins)),
        Output::Json => output::show(Output::Json, "", &List { items, next: None }),
        Output::Jsonl => items.iter().for_each(|item| output::show(Output::Jsonl, "", item)),
    }
    Ok(())
}

impl From<&Entry> for Shown {
    fn from(entry: &Entry) -> Self {
        let (origin, line) = match entry.origin {
            Origin::Flag => ("flag", None),
            Origin::Environment => ("environment", None),
            Origin::File(line) => ("file", line),
            Origin::Default => ("default", None),
        };
        let (section, key) = (entry.section.clone(), entry.key.clone());
        let variable = config::variable(&section, &key);
        Self { section, key, value: entry.shown(), variable, origin, line, reloads: entry.reloads }
    }
}

/// As a file that would say the same.
fn text(entries: &[Entry], has_origins: bool) -> String {
    let mut text = String::new();
    let mut section = "";
    for entry in entries {
        if section != entry.section {
            section = &entry.section;
            let gap = if text.is_empty() { "" } else { "\n" };
            let is_many = section.starts_with("webhooks.");
            let head = if is_many { "[[webhooks]]".to_owned() } else { format!("[{section}]") };
            text.push_str(&format!("{gap}{head}\n"));
        }
        let Some(value) = entry.shown() else { continue };
        let key = &entry.key;
        let origin = match (&entry.origin, has_origins) {
            (_, false) => String::new(),
            (Origin::Flag, _) => format!("--{}", key.replace('_', "-")),
            (Origin::Environment, _) => {
                config::variable(&entry.section, key).unwrap_or_else(|| "a variable".to_owned())
            }
            (Origin::File(Some(line)), _) => format!("line {line}"),
            (Origin::File(None), _) => "the file".to_owned(),
            (Origin::Default, _) => "default".to_owned(),
        };
        let line = format!("{key} = {value}");
        match has_origins {
            true => text.push_str(&format!("{line:<40}  {DIM}# {origin}{DIM:#}\n")),
            false => text.push_str(&format!("{line}\n")),
        }
    }
    text
}
