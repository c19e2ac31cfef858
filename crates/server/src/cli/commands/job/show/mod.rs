//! `windlass job show`: a page on one job, with all that can be seen of it.
//!
//! It is bounded: of a long history the beginning and the end are shown, of a long payload the beginning.

mod attempts;
mod bars;
mod body;
mod facts;
mod history;
mod line;
mod next;
#[cfg(test)]
mod tests;

use clap::Args;
use serde::Deserialize;
use windlass::wire::{AttemptDocument, JobDocument};
use windlass_kernel::State;

pub(crate) use self::{
    body::{block, error as error_block},
    facts::Facts,
    history::table as event_table,
};
use super::seen::Event;
use crate::cli::{
    Output,
    api::{Api, ApiArgs, Document, path, with_query},
    look::view::{BOLD, View, state_look},
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Show {
    /// The job, job_…
    id: String,
    #[command(flatten)]
    api: ApiArgs,
}

/// All that is known of a job.
struct Page {
    job: JobDocument,
    attempts: Vec<AttemptDocument>,
    /// The first events and the last ones.
    events: Vec<Event>,
    /// Why it is not running, line by line.
    why: Vec<String>,
}

#[derive(Deserialize)]
struct Told {
    text: String,
}

/// How many events are read: the first, and the last.
const FIRST: u64 = 20;
const LAST: u64 = 900;

pub(super) async fn run(command: &Show, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.get(&path(&["jobs", &command.id])).await?;
    match view.output {
        Output::Table => {
            let page = read(&api, &document).await?;
            view.document(&document, || page.text(view));
        }
        // The document says it all: the rest of the page is read by other commands.
        Output::Json | Output::Jsonl => view.document(&document, String::new),
    }
    api.close().await;
    Ok(())
}

async fn read(api: &Api, document: &Document) -> Result<Page, Trouble> {
    let job: JobDocument = document.read()?;
    let id = &job.job_id.to_string();
    let attempts = api.pages(&["jobs", id, "attempts"], &[], u32::MAX, None).await?.read()?;
    let events = path(&["jobs", id, "events"]);
    let part = |after: u64, limit: u64| {
        with_query(
            &events,
            &[("after", Some(after.to_string())), ("limit", Some(limit.to_string()))],
        )
    };
    let events = match job.version.saturating_sub(LAST) {
        0..=FIRST => api.page(&part(0, FIRST + LAST)).await?.read()?,
        after => {
            let mut events: Vec<Event> = api.page(&part(0, FIRST)).await?.read()?;
            events.extend(api.page(&part(after, LAST)).await?.read::<Event>()?);
            events
        }
    };
    let why = match job.state.is_end() || matches!(job.state, State::Running | State::Dispatched) {
        true => Vec::new(),
        false => {
            let told: Told = api.get(&path(&["jobs", id, "why"])).await?.read()?;
            told.text.lines().skip(1).map(str::to_owned).collect()
        }
    };
    Ok(Page { job, attempts, events, why })
}

impl Page {
    fn text(&self, view: &View) -> String {
        let job = &self.job;
        let (shape, style) = state_look(job.state.as_str());
        let line = line::sentence(self, view.times);
        let mut text = format!("{BOLD}{}{BOLD:#}\n{style}{shape} {line}{style:#}\n\n", job.job_id);
        text.push_str(&facts::of(job, view).fit(view.width));
        let mut section = |section: String| {
            if !section.is_empty() {
                text.push('\n');
                text.push_str(&section);
            }
        };
        section(attempts::section(self, view));
        section(history::section(self, view));
        let id = &job.job_id.to_string();
        for (title, json) in [
            ("Payload", &job.payload),
            ("Result", &job.result),
            ("Remaining", &job.remaining),
            ("Progress", &job.progress),
        ] {
            let json = json.as_ref().map(|json| block(title, json.get(), id));
            section(json.unwrap_or_default());
        }
        section(job.error.as_ref().map(body::error).unwrap_or_default());
        section(self.why());
        section(next::section(job, view.width));
        text
    }

    fn why(&self) -> String {
        if self.why.is_empty() {
            return String::new();
        }
        let lines: String = self.why.iter().map(|line| format!("  {line}\n")).collect();
        format!("{BOLD}Why it is not running{BOLD:#}\n{lines}")
    }
}
