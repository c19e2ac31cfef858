//! `windlass job steps`, `windlass job signal` and `windlass job resume`: durable jobs.

use clap::Args;
use windlass::wire::{
    DeliveredDocument, ErrorBody, JobDocument, LedgerDocument, ResolveBody, SignalBody,
    StepDocument,
};
use windlass_kernel::ids::{CorrelationKey, StepKey};

use super::add::payload;
use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{
        table::{Cell, Room, Table},
        view::{View, state},
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Steps {
    /// The job, job_…
    id: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Signal {
    /// The job, job_…
    id: String,
    /// What the job waits for. There is one signal for each key of a job, for ever.
    key: CorrelationKey,
    /// What the signal brings, as JSON; @FILE or - reads it from there.
    payload: Option<String>,
    /// Say no instead, with this code: the handler gets an error.
    #[arg(long, value_name = "CODE", conflicts_with = "payload")]
    reject: Option<String>,
    /// Refuse it if the job does not wait for it now.
    #[arg(long)]
    expect_waiting: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Resume {
    /// The job, job_… It waits for a person.
    id: String,
    /// The step that it asks about.
    #[arg(long, value_name = "STEP")]
    step: Option<StepKey>,
    /// The step happened, and this is its result, as JSON; @FILE or - reads it from there.
    #[arg(long, value_name = "JSON", requires = "step", group = "said")]
    happened: Option<String>,
    /// Nothing happened: the step may run again.
    #[arg(long, requires = "step", group = "said")]
    not_done: bool,
    /// Why. It is kept in the history of the job.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn steps(command: &Steps, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.get(&path(&["jobs", &command.id, "steps"])).await?;
    let ledger: LedgerDocument = document.read()?;
    view.document(&document, || step_table(&ledger.steps).fit(view.width));
    api.close().await;
    Ok(())
}

fn step_table(steps: &[StepDocument]) -> Table {
    let mut table = Table::new("It has no steps: its handler is not durable, or has not begun.")
        .number("#", Room::Needed)
        .column("STEP", Room::Needed)
        .column("MODE", Room::Needed)
        .column("STATE", Room::Needed)
        .column("RESULT", Room::Shorten(20));
    for step in steps {
        let mode = step.mode.map_or_else(|| step.op.to_string(), |mode| mode.to_string());
        let output = step.output.as_ref().map(|output| output.get().to_owned());
        let error = step.error.as_ref().map(|error| format!("{}: {}", error.code, error.message));
        table.row([
            Cell::from(step.number.map(|number| number.to_string()).unwrap_or_default()),
            Cell::from(step.step_key.as_str()),
            Cell::from(mode),
            Cell::from(step.state.as_str()),
            Cell::from(output.or(error).unwrap_or_default()),
        ]);
    }
    table
}

pub(super) async fn signal(command: &Signal, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let error = command.reject.as_ref().map(|code| ErrorBody {
        code: code.clone(),
        message: String::new(),
        class: None,
        retryable: Some(false),
        retry_after: None,
    });
    let body = SignalBody {
        correlation_key: Some(command.key.clone()),
        payload: command.payload.as_deref().map(payload).transpose()?,
        error,
        expect_waiting: command.expect_waiting,
    };
    let body = serde_json::to_string(&body).expect("a body is plain data");
    let document = api.post(&path(&["jobs", &command.id, "signals"]), Some(body)).await?;
    let told: DeliveredDocument = document.read()?;
    view.document(&document, || {
        let what = match (told.delivered, told.duplicate, told.waiting_on.is_empty()) {
            (true, ..) => "the job waited for it and goes on".to_owned(),
            (false, true, _) => "it had come before: nothing changed".to_owned(),
            (false, false, true) => "nobody waits for it yet: it is kept".to_owned(),
            (false, false, false) => {
                format!("it is kept; the job waits for {}", told.waiting_on.join(", "))
            }
        };
        format!("{}  {what}\n", told.job_id)
    });
    api.close().await;
    Ok(())
}

pub(super) async fn resume(command: &Resume, view: &View) -> Result<(), Trouble> {
    if command.step.is_some() && command.happened.is_none() && !command.not_done {
        return Err(Trouble::usage("say what became of the step")
            .then("It happened: --happened JSON")
            .then("Nothing happened: --not-done"));
    }
    let api = Api::open(&command.api).await?;
    let body = ResolveBody {
        step_key: command.step.clone(),
        output: command.happened.as_deref().map(payload).transpose()?,
        error: None,
        not_done: command.not_done,
        reason: command.reason.clone(),
    };
    let body = serde_json::to_string(&body).expect("a body is plain data");
    let document = api.post(&path(&["jobs", &command.id, "resolve"]), Some(body)).await?;
    let job: JobDocument = document.read()?;
    view.document(&document, || format!("{}  {}\n", job.job_id, state(job.state.as_str())));
    api.close().await;
    Ok(())
}
