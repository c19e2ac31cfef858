//! `windlass job cancel` and `windlass job retry`.

use clap::Args;
use serde::Deserialize;
use serde_json::json;

use crate::cli::{
    api::{Api, ApiArgs, path},
    trouble::Trouble,
    view::{View, state},
};

#[derive(Args)]
pub(crate) struct Cancel {
    /// The jobs, job_…
    #[arg(required = true)]
    ids: Vec<String>,
    /// Do not wait for the handler to clean up.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Args)]
pub(crate) struct Retry {
    /// The jobs, job_…
    #[arg(required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Deserialize)]
struct Acted {
    job_id: String,
    state: String,
    cancel_requested: bool,
}

pub(super) async fn cancel(command: &Cancel, view: &View) -> Result<(), Trouble> {
    let body = json!({"force": command.force}).to_string();
    act(&command.api, &command.ids, "cancel", body, view).await
}

pub(super) async fn retry(command: &Retry, view: &View) -> Result<(), Trouble> {
    act(&command.api, &command.ids, "retry", "{}".to_owned(), view).await
}

/// Does it to each, and stops at the first that refuses.
async fn act(
    args: &ApiArgs,
    ids: &[String],
    verb: &str,
    body: String,
    view: &View,
) -> Result<(), Trouble> {
    let api = Api::open(args).await?;
    for id in ids {
        let document = api.post(&path(&["jobs", id, verb]), Some(body.clone())).await?;
        let acted: Acted = document.read()?;
        view.document(&document, || {
            let asked = if acted.cancel_requested { ", asked to stop" } else { "" };
            format!("{}  {}{asked}\n", acted.job_id, state(&acted.state))
        });
    }
    api.close().await;
    Ok(())
}
