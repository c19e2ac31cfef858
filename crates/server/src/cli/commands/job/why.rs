//! `windlass job why`: why a job is not running.

use clap::Args;
use serde::Deserialize;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::view::View,
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Why {
    /// The job, job_…
    id: String,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Deserialize)]
struct Told {
    text: String,
}

pub(super) async fn run(command: &Why, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.get(&path(&["jobs", &command.id, "why"])).await?;
    let told: Told = document.read()?;
    view.document(&document, || told.text.clone() + "\n");
    api.close().await;
    Ok(())
}
