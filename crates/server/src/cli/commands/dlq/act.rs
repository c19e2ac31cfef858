//! `windlass dlq requeue`, `discard` and `approve`: what becomes of dead letters.

use clap::Args;
use windlass::wire::{DiscardBody, LetterDocument, RequeueBody, Requeued};

use super::{letter_id, look, show::sentence};
use crate::cli::{
    api::{Api, ApiArgs, path},
    commands::job::payload,
    look::{
        ask,
        view::{View, state},
    },
    many::{self, WhichArgs},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Requeue {
    /// The letters, dlq_…, or their jobs, job_…; or say which with --code, --queue, --kind or --tag.
    ids: Vec<String>,
    /// Another payload than the one that failed: JSON, @FILE, or - for standard input.
    #[arg(short, long, value_name = "JSON")]
    payload: Option<String>,
    #[command(flatten)]
    which: WhichArgs,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Discard {
    /// The letters, dlq_…, or their jobs, job_…
    #[arg(required = true)]
    ids: Vec<String>,
    /// Why. The second person reads it.
    #[arg(short, long, value_name = "WHY")]
    reason: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Approve {
    /// The letters, dlq_…, or their jobs, job_…
    #[arg(required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn requeue(command: &Requeue, view: &View) -> Result<(), Trouble> {
    match (command.ids.is_empty(), command.which.is_empty()) {
        (false, true) => by_name(command, view).await,
        (true, false) if command.payload.is_some() => {
            Err(Trouble::usage("--payload goes with one letter, not with all that fit"))
        }
        (true, false) => {
            let api = Api::open(&command.api).await?;
            let act = many::Act {
                act: "requeue",
                ask: "Requeue",
                done: "requeued",
                things: ("dead letter", "dead letters"),
                states: None,
                reason: None,
            };
            many::run(&api, &command.which, &act, view).await?;
            api.close().await;
            Ok(())
        }
        (false, false) => Err(Trouble::usage("name the letters or say which all are, not both")),
        (true, true) => Err(Trouble::usage("say which dead letters to requeue")
            .then("By name: windlass dlq requeue LETTER")
            .then("All of one cause: windlass dlq requeue --code CODE (windlass dlq groups lists them)")),
    }
}

/// Requeues each, and stops at the first that refuses.
async fn by_name(command: &Requeue, view: &View) -> Result<(), Trouble> {
    let payload = match command.payload.as_deref() {
        Some(_) if command.ids.len() > 1 => {
            return Err(Trouble::usage("--payload goes with one letter, not with several"));
        }
        given => given.map(payload).transpose()?,
    };
    let body = RequeueBody { payload, new_job_id: None };
    let body = serde_json::to_string(&body).expect("a body is plain data");
    let api = Api::open(&command.api).await?;
    for id in &command.ids {
        let path = path(&["dlq", &letter_id(id), "requeue"]);
        let document = api.post(&path, Some(body.clone())).await?;
        let Requeued { dlq_id, job }: Requeued = document.read()?;
        view.document(&document, || format!("{}\n", job.job_id));
        view.say(&format!(
            "It takes over from {dlq_id}: {}. Follow it: windlass job watch {}",
            state(job.state.as_str()),
            job.job_id
        ));
    }
    api.close().await;
    Ok(())
}

pub(super) async fn discard(command: &Discard, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let body = DiscardBody { reason: command.reason.clone() };
    let body = serde_json::to_string(&body).expect("a body is plain data");
    let mut last = None;
    for id in &command.ids {
        let path = path(&["dlq", &letter_id(id), "discard"]);
        let document = api.post(&path, Some(body.clone())).await?;
        let letter: LetterDocument = document.read()?;
        view.document(&document, || line(&letter, view));
        last = Some(letter.dlq_id);
    }
    if let Some(id) = last {
        view.say(&format!("A second person has to agree: windlass dlq approve {id} --as NAME"));
    }
    api.close().await;
    Ok(())
}

pub(super) async fn approve(command: &Approve, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let what = match command.ids.as_slice() {
        [one] => format!("Throw {} away for good?", letter_id(one)),
        more => format!("Throw {} dead letters away for good?", more.len()),
    };
    ask::confirm(view, &what)?;
    for id in &command.ids {
        let document =
            api.post(&path(&["dlq", &letter_id(id), "discard", "approve"]), None).await?;
        let letter: LetterDocument = document.read()?;
        view.document(&document, || line(&letter, view));
    }
    api.close().await;
    Ok(())
}

fn line(letter: &LetterDocument, view: &View) -> String {
    let (shape, style) = look(letter.state);
    format!("{}  {style}{shape} {}{style:#}\n", letter.dlq_id, sentence(letter, view))
}
