//! `windlass dlq list`: dead letters, newest first.

use clap::Args;
use windlass::wire::LetterDocument;
use windlass_kernel::LetterState;

use super::look;
use crate::cli::{
    api::{Api, ApiArgs},
    filter::FilterArgs,
    look::{
        table::{Cell, Room, Table},
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct List {
    /// Only those of which this became: open, discard_requested, discarded or requeued.
    #[arg(short, long)]
    state: Option<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// How many at the most.
    #[arg(short = 'n', long, default_value_t = 20)]
    limit: u32,
    /// Where to go on: the `next` of the list before.
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &List, view: &View) -> Result<(), Trouble> {
    let mut query = vec![("state", command.state.clone())];
    query.extend(command.filter.named(view)?);
    let is_filtered = command.state.is_some() || !command.filter.is_empty();
    let api = Api::open(&command.api).await?;
    let page = api.pages(&["dlq"], &query, command.limit, command.cursor.clone()).await?;
    api.close().await;
    let letters: Vec<LetterDocument> = page.read()?;
    view.list(&page, || table(&letters, is_filtered, view));
    if let Some(next) = &page.next {
        view.say(&format!("There are more: --cursor {next}"));
    }
    if let Some(letter) = letters.iter().find(|letter| letter.state == LetterState::Open) {
        view.say(&format!("Look at one: windlass dlq show {}", letter.dlq_id));
    }
    Ok(())
}

/// Where there is less room than this, the message goes first.
const NARROW: usize = 80;

fn table(letters: &[LetterDocument], is_filtered: bool, view: &View) -> Table {
    let empty = match is_filtered {
        true => "No dead letter fits. Leave out a filter to see more.",
        false => "There is no dead letter: no job has failed for good.",
    };
    let message = if view.width < NARROW { Room::Spare(3) } else { Room::Shorten(16) };
    let mut table = Table::new(empty)
        .column("LETTER", Room::Needed)
        .column("STATE", Room::Needed)
        .column("CODE", Room::Needed)
        .number("TRIES", Room::Spare(2))
        .column("SINCE", Room::Spare(1))
        .column("MESSAGE", message);
    for letter in letters {
        let (shape, style) = look(letter.state);
        table.row([
            letter.dlq_id.to_string().into(),
            Cell::styled(format!("{shape} {}", letter.state), style),
            letter.error.code.as_str().into(),
            letter.attempt.to_string().into(),
            view.times.show(letter.created_at).into(),
            letter.error.message.as_str().into(),
        ]);
    }
    table
}
