//! `windlass job verify`: is the history of a job the one that was written?

use clap::Args;
use serde::Deserialize;

use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{prose::wrapped, view::View},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Verify {
    /// The jobs, job_…
    #[arg(required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    api: ApiArgs,
}

#[derive(Deserialize)]
struct Verified {
    job_id: String,
    whole: bool,
    events: u64,
    head: String,
    broken_at: Option<Broken>,
}

#[derive(Deserialize)]
struct Broken {
    number: u64,
    expected: String,
    found: Option<String>,
    why: String,
}

pub(super) async fn run(command: &Verify, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let mut broken = Vec::new();
    for id in &command.ids {
        let document = api.get(&path(&["jobs", id, "verify"])).await?;
        let verified: Verified = document.read()?;
        view.document(&document, || verified.sentence(view.width));
        if !verified.whole {
            broken.push(verified);
        }
    }
    api.close().await;
    broken.first().map_or(Ok(()), |first| Err(first.trouble(broken.len())))
}

impl Verified {
    fn sentence(&self, width: usize) -> String {
        let (id, events, head) = (&self.job_id, self.events, &self.head);
        if self.whole {
            let whole = format!(
                "whole: each of its {events} events follows from the one before; head {head}"
            );
            return format!("{id}  {}\n", wrapped(&whole, 2, width.saturating_sub(id.len())));
        }
        let Some(broken) = &self.broken_at else { return format!("{id}  broken\n") };
        let found = broken.found.as_deref().unwrap_or("nothing");
        format!(
            "{id}  broken at event {} of {events}: {}\n  expected {}\n  found    {found}\n",
            broken.number, broken.why, broken.expected
        )
    }

    fn trouble(&self, count: usize) -> Trouble {
        let id = &self.job_id;
        let what = match count {
            1 => format!("the history of {id} is not the one that was written"),
            _ => format!(
                "the histories of {id} and of {} more are not as they were written",
                count - 1
            ),
        };
        Trouble::failed(what)
            .then("Somebody or something changed the database behind our back. Keep a copy: windlass backup")
            .then("Look at all that is stored: windlass doctor --deep")
    }
}
