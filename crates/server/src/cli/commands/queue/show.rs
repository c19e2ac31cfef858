//! `windlass queue show`: one queue, its jobs by state, and the rules that hold for it.

use clap::Args;
use windlass::wire::QueueDocument;
use windlass_kernel::State;

use super::{
    rules::{self, Rule},
    status,
};
use crate::cli::{
    api::{Api, ApiArgs, path},
    look::{
        prose::wrapped,
        table::{Cell, Room, Table},
        view::{BOLD, View},
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Show {
    /// The name of the queue.
    queue: String,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Show, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let document = api.get(&path(&["queues", &command.queue])).await?;
    let queue: QueueDocument = document.read()?;
    let rules: Vec<Rule> = match view.is_for_people() {
        true => api.page(&path(&["rules"])).await?.read()?,
        false => Vec::new(),
    };
    let rules: Vec<Rule> = rules.into_iter().filter(|rule| rule.holds_for(&queue.queue)).collect();
    view.document(&document, || page(&queue, &rules, view));
    api.close().await;
    Ok(())
}

fn page(queue: &QueueDocument, rules: &[Rule], view: &View) -> String {
    let mut text = format!("{BOLD}{}{BOLD:#}  {}\n\n", queue.queue, status(queue));
    let mut states =
        Table::new("It has no jobs.").column("STATE", Room::Needed).number("JOBS", Room::Needed);
    for state in State::ALL {
        if let Some(count) = queue.counts.get(state.as_str()) {
            states.row([Cell::state(state.as_str()), count.to_string().into()]);
        }
    }
    text.push_str(&states.fit(view.width));
    if let Some(since) = queue.oldest_ready_at {
        let longest =
            format!("The job that waits longest is ready since {}.", view.times.show(since));
        text.push_str(&format!("\n{}\n", wrapped(&longest, 0, view.width)));
    }
    text.push('\n');
    let none = format!(
        "No rule holds for it. Set one: windlass queue limit {} --concurrency 10",
        queue.queue
    );
    text.push_str(&rules::table(rules, &none, view).fit(view.width));
    text
}
