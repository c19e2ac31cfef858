//! How a person wants to see things: as a table or as documents, how wide, and in whose time.
//!
//! Data goes to stdout. Colours are left out where they are not wanted: on a pipe, with `NO_COLOR`, on a dumb terminal.

use std::{env, io::IsTerminal as _};

use anstyle::{AnsiColor, Style};
use clap::{Args, ValueEnum};
use windlass_kernel::Timestamp;

use crate::cli::{
    Output,
    api::{Document, Page},
    look::{
        json,
        table::Table,
        terminal::{self, print},
        times::{TimeStyle, Times},
    },
};

/// What every command is told about how to show things.
#[derive(Args, Clone)]
pub(crate) struct ViewArgs {
    /// How results are written: table for people, json for programs, jsonl with a line for each thing.
    #[arg(short, long, global = true, value_enum, default_value_t, env = "WINDLASS_OUTPUT")]
    #[arg(hide_possible_values = true, hide_env_values = true, help_heading = "Everywhere")]
    pub(crate) output: Output,
    /// How times are written: relative, local, utc or unix.
    #[arg(long, global = true, value_enum, default_value_t, env = "WINDLASS_TIME")]
    #[arg(hide_possible_values = true, hide_env_values = true, help_heading = "Everywhere")]
    pub(crate) time: TimeStyle,
    /// Do what is dangerous without asking.
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) yes: bool,
    /// When to use colours: auto, always or never.
    #[arg(long, global = true, value_enum, default_value_t, hide_possible_values = true)]
    #[arg(help_heading = "Everywhere")]
    color: Color,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Color {
    /// On a terminal that has them, unless `NO_COLOR` is set.
    #[default]
    Auto,
    Always,
    Never,
}

/// How to show things, here and now.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) output: Output,
    pub(crate) times: Times,
    /// How many characters fit into a line.
    pub(crate) width: usize,
    /// May it do what is dangerous without asking?
    pub(crate) yes: bool,
}

impl View {
    pub(crate) fn new(args: &ViewArgs) -> Self {
        match args.color {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::AlwaysAnsi,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
        Self {
            output: args.output,
            times: Times::new(args.time, now()),
            width: width(),
            yes: args.yes,
        }
    }

    /// Shows one thing: the text for people, or the document as it came.
    pub(crate) fn document(&self, document: &Document, text: impl FnOnce() -> String) {
        match self.output {
            Output::Table => print(&text()),
            Output::Json => print(&(json::laid_out(document.text()) + "\n")),
            Output::Jsonl => print(&(document.text().to_owned() + "\n")),
        }
    }

    /// Shows many things: a table, the list as a document, or a line for each of them.
    pub(crate) fn list(&self, page: &Page, table: impl FnOnce() -> Table) {
        match self.output {
            Output::Table => print(&table().fit(self.width)),
            Output::Json => print(&(json::laid_out(&page.text()) + "\n")),
            Output::Jsonl => {
                let lines = page.items.iter().map(|item| item.get().to_owned() + "\n");
                print(&lines.collect::<String>());
            }
        }
    }

    /// Shows several things that are no list of the API: one as itself, more as a list.
    pub(crate) fn documents(&self, documents: &[Document]) {
        if let [one] = documents {
            return self.document(one, String::new);
        }
        let items: Vec<&str> = documents.iter().map(Document::text).collect();
        let list = format!("{{\"items\":[{}],\"next\":null}}", items.join(","));
        print(&(json::laid_out(&list) + "\n"));
    }

    /// Says something that is no data, to people only.
    pub(crate) fn say(&self, text: &str) {
        if self.is_for_people() {
            terminal::say(text);
        }
    }

    pub(crate) fn is_for_people(&self) -> bool {
        matches!(self.output, Output::Table)
    }

    /// The same view at this moment, for what is drawn again and again.
    pub(crate) fn renewed(&self) -> Self {
        Self { times: self.times.at(now()), width: width(), ..self.clone() }
    }
}

/// What time it is on this machine.
pub(crate) fn now() -> Timestamp {
    Timestamp::from_micros(jiff::Timestamp::now().as_microsecond())
}

/// How wide a line may be: what `COLUMNS` says, else the terminal, else as wide as it likes.
fn width() -> usize {
    let said = env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let seen = || {
        let size = terminal_size::terminal_size().filter(|_| std::io::stdout().is_terminal());
        size.map(|(width, _)| usize::from(width.0))
    };
    said.or_else(seen).filter(|width| *width > 0).unwrap_or(usize::MAX)
}

/// Not so important.
pub(crate) const DIM: Style = Style::new().dimmed();
/// What a page is about.
pub(crate) const BOLD: Style = Style::new().bold();

/// How a state looks, always with its shape and its word: nobody needs to see colours.
pub(crate) fn state_look(state: &str) -> (&'static str, Style) {
    let color = |color: AnsiColor| Style::new().fg_color(Some(color.into()));
    match state {
        "succeeded" => ("✓", color(AnsiColor::Green)),
        "partial" => ("◐", color(AnsiColor::Green)),
        "running" => ("▶", color(AnsiColor::Cyan)),
        "dispatched" => ("▷", color(AnsiColor::Cyan)),
        "waiting" => ("‖", color(AnsiColor::Blue)),
        "queued" => ("○", Style::new()),
        "scheduled" => ("◷", Style::new()),
        "retry_scheduled" => ("↻", color(AnsiColor::Yellow)),
        "interrupted" => ("!", color(AnsiColor::Yellow)),
        "failed" | "dlq_pending" | "dlq_recorded" => ("✗", color(AnsiColor::Red)),
        "cancelled" => ("⊘", color(AnsiColor::Magenta)),
        _ => ("·", Style::new()),
    }
}

/// A state with its shape, in its colour.
pub(crate) fn state(state: &str) -> String {
    let (shape, style) = state_look(state);
    format!("{style}{shape} {state}{style:#}")
}
