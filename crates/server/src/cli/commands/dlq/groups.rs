//! `windlass dlq groups`: dead letters by cause.

use clap::Args;
use windlass::wire;

use crate::cli::{
    Output,
    api::{Api, ApiArgs, path, with_query},
    look::{
        count::grouped,
        table::{Room, Table},
        view::View,
    },
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Groups {
    /// Those of which this became: open, discard_requested, discarded or requeued.
    #[arg(short, long, default_value = "open")]
    state: String,
    #[command(flatten)]
    api: ApiArgs,
}

pub(super) async fn run(command: &Groups, view: &View) -> Result<(), Trouble> {
    let api = Api::open(&command.api).await?;
    let query = [("state", Some(command.state.clone()))];
    let path = with_query(&path(&["dlq", "groups"]), &query);
    if matches!(view.output, Output::Jsonl) {
        let page = api.page(&path).await?;
        view.list(&page, Default::default);
        api.close().await;
        return Ok(());
    }
    let document = api.get(&path).await?;
    api.close().await;
    let told: wire::Groups = document.read()?;
    view.document(&document, || table(&told, view).fit(view.width));
    if told.more {
        let letters = grouped(told.looked_at);
        view.say(&format!("These are the largest groups of {letters} letters; there are more."));
    }
    if let Some(largest) = told.items.first().filter(|_| command.state == "open") {
        let code = &largest.code;
        view.say(&format!("Look at one: windlass dlq show {}", largest.example));
        view.say(&format!("Requeue all of a code: windlass dlq requeue --code {code}"));
    }
    Ok(())
}

fn table(told: &wire::Groups, view: &View) -> Table {
    let mut table = Table::new("There is no such dead letter.")
        .number("COUNT", Room::Needed)
        .column("CODE", Room::Needed)
        .column("MESSAGE", Room::Shorten(12))
        .column("FIRST", Room::Spare(2))
        .column("LAST", Room::Spare(1))
        .column("EXAMPLE", Room::Spare(0));
    for group in &told.items {
        table.row([
            grouped(group.count).into(),
            group.code.as_str().into(),
            group.message.as_str().into(),
            view.times.show(group.first_at).into(),
            view.times.show(group.last_at).into(),
            group.example.to_string().into(),
        ]);
    }
    table
}
