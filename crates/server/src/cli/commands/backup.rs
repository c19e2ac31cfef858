//! `windlass backup`: a copy of the database in one file, whole and checked.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use windlass_store::sqlite::{self, BackupOptions};

use crate::cli::{
    look::{
        output,
        progress::{self, size},
        prose::wrapped,
        view::View,
    },
    store::StoreArg,
    trouble::Trouble,
};

#[derive(Args)]
pub(crate) struct Backup {
    /// The file to write.
    file: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Replace the file if it is there.
    #[arg(long)]
    force: bool,
    /// Check the whole history of the copy, as `windlass doctor --deep` does.
    #[arg(long)]
    deep: bool,
}

/// What was written, for programs.
#[derive(Serialize)]
struct Written {
    file: String,
    bytes: u64,
    last_event: u64,
    incarnation: u32,
    checked: &'static str,
}

pub(crate) fn run(command: &Backup, view: &View) -> Result<(), Trouble> {
    let path = command.store.existing()?;
    let options = BackupOptions { force: command.force, deep: command.deep };
    let bar = progress::copy_bar();
    let mut progress = |copied| progress::show(&bar, copied);
    let made = sqlite::backup(&path, &command.file, options, &mut progress);
    drop(bar);
    let made = made.map_err(|error| Trouble::of_store(&error))?;
    let written = Written {
        file: command.file.display().to_string(),
        bytes: made.bytes,
        last_event: made.last_event,
        incarnation: made.incarnation,
        checked: if command.deep { "deep" } else { "quick" },
    };
    output::show(view.output, &told(&written, &command.store.store, view.width), &written);
    Ok(())
}

/// What was written, and the command that puts it back, which stays on one line.
fn told(written: &Written, store: &str, width: usize) -> String {
    let Written { file, bytes, last_event, checked, .. } = written;
    let size = size(*bytes);
    let whole =
        format!("{file} is whole: {size}, up to event {last_event}. It passed a {checked} check.");
    format!(
        "{}\nPut it back: windlass restore {file} --store {store} --force\n",
        wrapped(&whole, 0, width)
    )
}
