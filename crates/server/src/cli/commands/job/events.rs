//! `windlass job events`: the history of a job, event by event.

use clap::Args;
use windlass::wire::JobDocument;

use super::{seen::Event, show::event_table};
use crate::cli::{
    api::{Api, ApiArgs, path, with_query},
    look::view::View,
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Events {
    /// The job, job_…
    id: String,
    /// Only those after this number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// How many at the most, up to 1000.
    #[arg(short = 'n', long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Events, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let query =
        [("after", Some(command.after.to_string())), ("limit", Some(command.limit.to_string()))];
    let page = api.page(&with_query(&path(&["jobs", &command.id, "events"]), &query)).await?;
    if view.is_for_people() {
        let job: JobDocument = api.get(&path(&["jobs", &command.id])).await?.read()?;
        let events: Vec<Event> = page.read()?;
        let events: Vec<&Event> = events.iter().collect();
        view.list(&page, || event_table(&events, job.created_at, view));
    } else {
        view.list(&page, Default::default);
    }
    if let Some(next) = &page.next {
        view.say(&format!("There are more: --after {next}"));
    }
    api.close().await;
    Ok(())
}
