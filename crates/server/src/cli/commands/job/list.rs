//! `windlass job list`: jobs by what they have in common, newest first.

use std::time::Duration;

use clap::Args;
use windlass::wire::JobDocument;

use super::watch;
use crate::cli::{
    Output,
    api::{Api, ApiArgs, path, with_query},
    filter::FilterArgs,
    look::{
        screen::Screen,
        table::{Cell, Room, Table},
        times,
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct List {
    /// Only those in one of these states, such as queued,running.
    #[arg(short, long, value_name = "STATE,…")]
    state: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// How many at the most.
    #[arg(short = 'n', long, default_value_t = 20)]
    limit: u32,
    /// Where to go on: the `next` of the list before.
    #[arg(long)]
    cursor: Option<String>,
    /// Draw it again and again.
    #[arg(short, long)]
    watch: bool,
    /// How often, with --watch.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = times::parse)]
    every: Duration,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &List, view: &View) -> Result<(), Trouble> {
    let mut query = vec![("state", command.state.clone())];
    query.extend(command.filter.named(view)?);
    let is_filtered = command.state.is_some() || !command.filter.is_empty();
    let api = Api::open(&command.api).await?;
    if command.watch {
        query.push(("limit", Some(command.limit.to_string())));
        query.push(("cursor", command.cursor.clone()));
        let drawn = |rows: &[JobDocument], view: &View| table(rows, is_filtered, view);
        let path = with_query(&path(&["jobs"]), &query);
        return redraw(&api, &path, command.every, view, drawn).await;
    }
    let page = api.pages(&["jobs"], &query, command.limit, command.cursor.clone()).await?;
    let rows: Vec<JobDocument> = page.read()?;
    view.list(&page, || table(&rows, is_filtered, view));
    if let Some(next) = &page.next {
        view.say(&format!("There are more: --cursor {next}"));
    }
    api.close().await;
    Ok(())
}

/// No faster than a person can read, nor than a server should be asked.
const EVERY_MIN: Duration = Duration::from_millis(200);

/// Draws the list in the place of the one before, until somebody stops it. For programs it is a document each time.
async fn redraw(
    api: &Api,
    path: &str,
    every: Duration,
    view: &View,
    drawn: impl Fn(&[JobDocument], &View) -> Table,
) -> Result<(), Trouble> {
    watch::needs_a_server(api, "Or leave out --watch, to see how they stand.")?;
    let mut screen = Screen::default();
    loop {
        let page = api.page(path).await?;
        let rows: Vec<JobDocument> = page.read()?;
        let view = view.renewed();
        match view.output {
            Output::Table => screen.draw(&drawn(&rows, &view).fit(view.width)),
            Output::Json | Output::Jsonl => view.list(&page, Table::default),
        }
        tokio::time::sleep(every.max(EVERY_MIN)).await;
    }
}

fn table(rows: &[JobDocument], is_filtered: bool, view: &View) -> Table {
    let empty = match is_filtered {
        true => "No job fits. Leave out a filter to see more.",
        false => {
            "There is no job yet. Make one: windlass job add send_mail '{\"to\": \"ann@example.com\"}'"
        }
    };
    let mut table = Table::new(empty)
        .column("JOB", Room::Needed)
        .column("STATE", Room::Needed)
        .column("KIND", Room::Shorten(16))
        .column("QUEUE", Room::Spare(2))
        .number("TRIES", Room::Spare(1))
        .column("CREATED", Room::Spare(4))
        .column("CHANGED", Room::Spare(0))
        .column("ERROR", Room::Spare(3));
    for row in rows {
        let (tries, most) = (row.retry_count + 1, row.max_retries + 1);
        let again = if row.attempt > tries { " (again)" } else { "" };
        table.row([
            row.job_id.to_string().into(),
            Cell::state(row.state.as_str()),
            row.kind.as_str().into(),
            row.queue.as_str().into(),
            format!("{tries}/{most}{again}").into(),
            view.times.show(row.created_at).into(),
            view.times.show(row.updated_at).into(),
            row.error.as_ref().map_or("-", |error| error.code.as_str()).into(),
        ]);
    }
    table
}
