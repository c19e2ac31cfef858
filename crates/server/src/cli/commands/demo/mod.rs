//! `windlass demo`: four jobs that show what there is to see, and a crash that is survived.

mod crash;

use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::time::{Instant, sleep};
use windlass::wire::JobDocument;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{
        terminal::print,
        view::{BOLD, DIM, View, state},
    },
    trouble::Trouble,
};
use crate::demo::INVOICE_MENDED;

/// Run four jobs in `windlass dev` that show what there is to see.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Demo {
    #[command(subcommand)]
    stage: Option<Stage>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Subcommand)]
enum Stage {
    /// Kill a server with kill -9 in mid-job, start it again, and see the job go on.
    Crash(crash::Crash),
}

pub(crate) async fn run(command: &Demo, view: &View) -> Result<(), Trouble> {
    if let Some(Stage::Crash(crash)) = &command.stage {
        return crash::run(crash, view).await;
    }
    let api = Api::open(&command.api).await?;
    if !api.is_server() {
        let is_alone = api.is_alone();
        api.close().await;
        return Err(match is_alone {
            true => Trouble::not_found("nobody serves this database, so nobody would run the demo")
                .then("Start a server in another terminal: windlass dev"),
            // A database server does not tell who else is there.
            false => Trouble::usage("the demo runs in a windlass dev, and this names a database")
                .then("Start one in another terminal: windlass dev --store postgres://…")
                .then("Then name it: windlass demo --server http://127.0.0.1:7117"),
        });
    }
    let made = api.call(axum::http::Method::POST, "/api/v1/internal/demo", None).await;
    let made = made.map_err(|trouble| match trouble.exit {
        crate::cli::exit::NOT_FOUND | crate::cli::exit::USAGE => {
            Trouble::not_found(format!("{} is no server for demos", api.place()))
                .then("Start one in another terminal: windlass dev")
        }
        _ => trouble,
    })?;
    let page = made.page()?;
    let jobs: Vec<JobDocument> = page.read()?;
    let ids: Vec<String> = jobs.into_iter().map(|job| job.job_id.to_string()).collect();
    view.document(&made, || told(&ids));
    if view.is_for_people()
        && let Some(invoice) = ids.get(1)
    {
        requeue(&api, invoice).await?;
    }
    Ok(())
}

/// What the four are, and how to look at each.
pub(crate) fn told(ids: &[String]) -> String {
    let of = |at: usize| ids.get(at).map_or("", String::as_str);
    let rows = [
        ("demo.mail", "fails twice, then succeeds", format!("windlass job watch {}", of(0))),
        (
            "demo.invoice",
            "cannot be right, and ends as a dead letter",
            format!("windlass job show {}", of(1)),
        ),
        ("demo.report", "waits for its time, 5 s from now", format!("windlass job why {}", of(2))),
        (
            "demo.import",
            "is slow: ten steps, one a second",
            format!("windlass job watch {}", of(3)),
        ),
    ];
    let mut text = format!("{BOLD}Four jobs are on their way.{BOLD:#}\n");
    for (kind, what, command) in rows {
        text.push_str(&format!("\n  {kind}: {DIM}{what}{DIM:#}\n    {command}\n"));
    }
    text
}

/// Waits for the dead letter, and shows how to mend it.
async fn requeue(api: &Api, invoice: &str) -> Result<(), Trouble> {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let stands: JobDocument = api.get(&path(&["jobs", invoice])).await?.read()?;
        if let Some(letter) = stands.dlq_id {
            print(&format!(
                "\n  The invoice {}: its amount was text. Give it a number, and it runs again:\n    \
                 windlass dlq requeue {letter} --payload '{INVOICE_MENDED}'\n\n  \
                 What a kill -9 in mid-job does:\n    windlass demo crash\n",
                state(stands.state.as_str())
            ));
            return Ok(());
        }
        if Instant::now() > until {
            print(&format!("\n  The invoice is still {}.\n", state(stands.state.as_str())));
            return Ok(());
        }
        sleep(Duration::from_millis(100)).await;
    }
}
