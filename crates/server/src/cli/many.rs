//! Acts on many: a filter says which, the person sees how many and some of them, says yes, and an operation that is
//! stored does it. It goes on when the command is stopped, and after a crash.

use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use windlass_kernel::State;

use super::{
    Output,
    api::{Api, Document, path},
    filter::FilterArgs,
    look::{
        ask,
        count::grouped,
        progress,
        table::{Cell, Room, Table},
        terminal::print,
        view::View,
    },
    trouble::Trouble,
};

/// Which ones, if they are not named.
#[derive(Args, Default)]
pub(crate) struct WhichArgs {
    #[command(flatten, next_help_heading = "All that fit")]
    filter: FilterArgs,
    /// How many a second at the most; 100, if nothing is said.
    #[arg(long, value_name = "N", help_heading = "All that fit")]
    per_second: Option<u32>,
    /// Say how many fit and show some, and do nothing.
    #[arg(long, help_heading = "All that fit")]
    dry_run: bool,
}

/// What is to be done to all that fit.
pub(crate) struct Act<'a> {
    /// As the API calls it.
    pub(crate) act: &'a str,
    /// As the question begins.
    pub(crate) ask: &'a str,
    /// As the result is told.
    pub(crate) done: &'a str,
    /// What they are, if there is one and if there are more.
    pub(crate) things: (&'a str, &'a str),
    /// Only those in these states, with commas in between.
    pub(crate) states: Option<&'a str>,
    pub(crate) reason: Option<&'a str>,
}

impl WhichArgs {
    /// Was nothing said about which?
    pub(crate) fn is_empty(&self) -> bool {
        self.filter.is_empty()
    }

    fn body(&self, act: &Act<'_>, view: &View) -> Result<String, Trouble> {
        let states: Option<Vec<&str>> = act.states.map(|states| states.split(',').collect());
        let mut filter = given([("states", json!(states))]);
        for (name, value) in self.filter.named(view)? {
            filter.extend(value.map(|value| (name.to_owned(), json!(value))));
        }
        let body = [
            ("act", json!(act.act)),
            ("filter", Value::Object(filter)),
            ("reason", json!(act.reason)),
            ("per_second", json!(self.per_second)),
        ];
        Ok(Value::Object(given(body)).to_string())
    }
}

/// Only what has a value.
fn given<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    let some = fields.into_iter().filter(|(_, value)| !value.is_null());
    some.map(|(name, value)| (name.to_owned(), value)).collect()
}

#[derive(Deserialize)]
struct Preview {
    count: u64,
    at_least: bool,
    sample: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
    job_id: String,
    state: String,
    kind: String,
    queue: String,
    error: Option<Code>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Operation {
    operation_id: String,
    state: State,
    progress: Option<Done>,
}

#[derive(Clone, Copy, Default, Deserialize)]
struct Done {
    done: u64,
    refused: u64,
}

/// Shows which, asks, and does it.
pub(crate) async fn run(
    api: &Api,
    which: &WhichArgs,
    act: &Act<'_>,
    view: &View,
) -> Result<(), Trouble> {
    let body = which.body(act, view)?;
    let previewed = api.post(&path(&["operations", "preview"]), Some(body.clone())).await?;
    let preview: Preview = previewed.read()?;
    let count = preview.counted(act);
    if preview.count == 0 || which.dry_run {
        view.document(&previewed, || format!("{count}\n{}", preview.sample(view)));
        return Ok(());
    }
    view.say(format!("{count}\n{}", preview.sample(view)).trim_end());
    ask::confirm(view, &format!("{} {}?", act.ask, preview.things(act)))?;
    let worker = api.carry_out().await?;
    let begun = api.post(&path(&["operations"]), Some(body)).await?;
    let ended = follow(api, begun, preview.count, view).await;
    if let Some(worker) = worker {
        let _ = worker.shutdown().await;
    }
    tell(&ended?, act, view)
}

impl Preview {
    /// How many, in words.
    fn things(&self, act: &Act<'_>) -> String {
        let (one, more) = act.things;
        match (self.count, self.at_least) {
            (1, false) => format!("1 {one}"),
            (count, false) => format!("{} {more}", grouped(count)),
            (count, true) => format!("{} or more {more}", grouped(count)),
        }
    }

    fn counted(&self, act: &Act<'_>) -> String {
        match self.count {
            0 => format!("No {} fits. Nothing was done.", act.things.0),
            1 => format!("{} fits:", self.things(act)),
            _ => format!("{} fit; the newest of them:", self.things(act)),
        }
    }

    fn sample(&self, view: &View) -> String {
        let mut table = Table::new("")
            .column("JOB", Room::Needed)
            .column("STATE", Room::Needed)
            .column("KIND", Room::Shorten(8))
            .column("QUEUE", Room::Spare(0))
            .column("ERROR", Room::Spare(1));
        for job in &self.sample {
            table.row([
                job.job_id.as_str().into(),
                Cell::state(&job.state),
                job.kind.as_str().into(),
                job.queue.as_str().into(),
                job.error.as_ref().map_or("-", |error| error.code.as_str()).into(),
            ]);
        }
        table.fit(view.width)
    }
}

/// How often to look how far it has come.
const LOOK: Duration = Duration::from_millis(200);

/// Shows how far it has come, until it is at its end.
async fn follow(api: &Api, begun: Document, count: u64, view: &View) -> Result<Document, Trouble> {
    let mut document = begun;
    let first: Operation = document.read()?;
    let id = first.operation_id;
    view.say(&format!("It is stored, and goes on if you leave: windlass job show {id}"));
    let bar = progress::bar("[{bar:40}] {pos} of {len}");
    bar.set_length(count);
    loop {
        let operation: Operation = document.read()?;
        let done = operation.progress.unwrap_or_default();
        bar.set_position((done.done + done.refused).min(count));
        if operation.state.is_end() {
            bar.finish_and_clear();
            return Ok(document);
        }
        tokio::time::sleep(LOOK).await;
        document = api.get(&path(&["operations", &id])).await?;
    }
}

fn tell(document: &Document, act: &Act<'_>, view: &View) -> Result<(), Trouble> {
    let operation: Operation = document.read()?;
    let Done { done, refused } = operation.progress.unwrap_or_default();
    let (one, more) = act.things;
    let things = if done == 1 { one } else { more };
    let changed = match refused {
        0 => String::new(),
        count => format!("; {} had changed meanwhile and stay as they are", grouped(count)),
    };
    let text = format!("{} {things} {}{changed}.\n", grouped(done), act.done);
    match view.output {
        Output::Table => print(&text),
        Output::Json | Output::Jsonl => view.document(document, String::new),
    }
    if operation.state == State::Succeeded {
        return Ok(());
    }
    let (id, state) = (&operation.operation_id, &operation.state);
    Err(Trouble::failed(format!("operation {id} is {state}, so not all of it was done"))
        .then(format!("Look at it: windlass job show {id}")))
}
