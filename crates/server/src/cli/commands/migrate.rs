//! `windlass migrate`: which steps the schema of a store has, and which it lacks.
//!
//! A server brings its store up to date when it starts. Who wants to see the steps first, or to run them by hand, does
//! it here. Steps go forward only.

use clap::{Args, Subcommand};
use serde::Serialize;
use windlass::{Config, Engine};
use windlass_store::{MigrationStep, Survey, postgres, sqlite};

use crate::cli::{
    Output, exit,
    look::{
        ask, output,
        table::{Room, Table},
        terminal::print,
        view::{DIM, View},
    },
    store::{StoreArg, StoreName},
    trouble::Trouble,
};

#[derive(Subcommand)]
pub(crate) enum MigrateCommand {
    /// Show every step of the schema, and how far the store is.
    Status(Status),
    /// Show the steps that are still to be run.
    Plan(Plan),
    /// Run the steps that are missing; a store that is not there is made.
    Up(Up),
}

#[derive(Args)]
pub(crate) struct Status {
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Args)]
pub(crate) struct Plan {
    /// Show the SQL of each step.
    #[arg(long)]
    show_sql: bool,
    /// Show the steps that were run before, too.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Args)]
pub(crate) struct Up {
    /// Show the SQL of each step that is run.
    #[arg(long)]
    show_sql: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// How far a store is.
#[derive(Serialize)]
struct Standing {
    schema: u32,
    known: u32,
    steps: Vec<Shown>,
}

/// A step as it is shown.
#[derive(Serialize)]
struct Shown {
    number: u32,
    done: bool,
    about: &'static str,
    /// The oldest step whose programs can serve the store after this one.
    served_from: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<&'static str>,
}

/// A store, its steps, and how far it is. A file that is not there has none of them.
async fn look(
    arg: &StoreArg,
    may_be_missing: bool,
) -> Result<(Survey, Vec<MigrationStep>), Trouble> {
    let path = arg.store.strip_prefix("sqlite:").map(std::path::Path::new);
    if may_be_missing && path.is_some_and(|path| !path.exists()) {
        let steps = sqlite::steps();
        let known = steps.last().map_or(0, |step| step.number);
        return Ok((Survey { known, ..Survey::default() }, steps));
    }
    let (survey, steps) = match arg.told()? {
        StoreName::File(path) => (sqlite::survey(&path), sqlite::steps()),
        StoreName::Server(options) => (postgres::survey(&options).await, postgres::steps()),
    };
    Ok((survey.map_err(|error| Trouble::of_store(&error))?, steps))
}

pub(crate) async fn run(command: &MigrateCommand, view: &View) -> Result<(), Trouble> {
    match command {
        MigrateCommand::Status(command) => status(command, view).await,
        MigrateCommand::Plan(command) => plan(command, view).await,
        MigrateCommand::Up(command) => up(command, view).await,
    }
}

async fn status(command: &Status, view: &View) -> Result<(), Trouble> {
    let (survey, steps) = look(&command.store, false).await?;
    let standing = Standing::new(&survey, &steps, |_| true, false);
    standing.show(view);
    let Survey { schema, known, .. } = survey;
    view.say(&match schema {
        0 => "There is no store in it yet. Make one: windlass migrate up".to_owned(),
        _ if schema < known => {
            format!("It is at step {schema} of {known}. What is to come: windlass migrate plan")
        }
        _ if schema > known => {
            format!("It is at step {schema}, and this program knows {known}: a newer one made it.")
        }
        _ => "It is up to date.".to_owned(),
    });
    Ok(())
}

async fn plan(command: &Plan, view: &View) -> Result<(), Trouble> {
    let (survey, steps) = look(&command.store, true).await?;
    let is_meant = |step: &MigrationStep| command.all || step.number > survey.schema;
    let standing = Standing::new(&survey, &steps, is_meant, command.show_sql);
    standing.show(view);
    if standing.is_due() {
        view.say("Run them with: windlass migrate up");
        if survey.schema > 0 && !standing.is_gentle(survey.schema) {
            view.say("Stop the servers of the older version first: they cannot go on afterwards.");
        }
    }
    Ok(())
}

async fn up(command: &Up, view: &View) -> Result<(), Trouble> {
    let (survey, steps) = look(&command.store, true).await?;
    let Survey { schema, known, .. } = survey;
    let is_meant = |step: &MigrationStep| step.number > schema;
    let mut standing = Standing::new(&survey, &steps, is_meant, command.show_sql);
    if schema > 0 && standing.is_due() {
        let question = format!(
            "Bring the store from step {schema} to {known}? An older version may not be able to open it afterwards."
        );
        ask::confirm(view, &question)?;
    }
    // Opening a store brings it up to date, under its lock and each step in a transaction.
    let config = Config { timers: None, retention: None, ..Config::default() };
    let engine = Engine::open_with(&command.store.store, &config).await;
    let engine = engine.map_err(|error| match error {
        windlass::Error::Store(error) => Trouble::of_store(&error),
        other => Trouble::failed(exit::chain(&other)),
    })?;
    engine.close().await;
    standing.schema = schema.max(known);
    standing.steps.iter_mut().for_each(|step| step.done = true);
    standing.show(view);
    if !standing.steps.is_empty() {
        view.say(&format!("The store is at step {known} of {known} now."));
    }
    Ok(())
}

impl Standing {
    fn new(
        survey: &Survey,
        steps: &[MigrationStep],
        is_meant: impl Fn(&MigrationStep) -> bool,
        shows_sql: bool,
    ) -> Self {
        let shown = |step: &MigrationStep| Shown {
            number: step.number,
            done: step.number <= survey.schema,
            about: step.about,
            served_from: step.served_from,
            sql: shows_sql.then_some(step.sql),
        };
        let steps = steps.iter().filter(|step| is_meant(step)).map(shown).collect();
        Self { schema: survey.schema, known: survey.known, steps }
    }

    /// Is a step missing?
    fn is_due(&self) -> bool {
        self.steps.iter().any(|step| !step.done)
    }

    /// Can programs that serve it now go on when the missing steps were run?
    fn is_gentle(&self, schema: u32) -> bool {
        self.steps.iter().all(|step| step.done || step.served_from <= schema)
    }

    fn show(&self, view: &View) {
        match view.output {
            Output::Table => print(&self.text(view)),
            Output::Json => output::show(Output::Json, "", self),
            Output::Jsonl => self.steps.iter().for_each(|it| output::show(Output::Jsonl, "", it)),
        }
    }

    fn text(&self, view: &View) -> String {
        if self.steps.iter().any(|step| step.sql.is_some()) {
            let title = |step: &Shown| format!("{DIM}-- step {}{DIM:#}\n", step.number);
            let sql = |step: &Shown| step.sql.unwrap_or_default().trim_end().to_owned();
            return self.steps.iter().map(|it| format!("{}{}\n\n", title(it), sql(it))).collect();
        }
        let mut table = Table::new("Nothing is to be done: the store is up to date.")
            .number("STEP", Room::Needed)
            .column("STATE", Room::Needed)
            .column("WHAT", Room::Shorten(20));
        for step in &self.steps {
            let state = if step.done { "✓ done" } else { "○ missing" };
            table.row([step.number.to_string().into(), state.into(), step.about.into()]);
        }
        table.fit(view.width)
    }
}
