//! `windlass backup`: a copy of the database in one file, whole and checked.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use serde::Serialize;
use windlass_store::sqlite::{self, BackupOptions};

use super::{
    Output, output,
    progress::{self, size},
    store::{self, StoreArg},
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

pub(crate) fn run(command: &Backup, format: Output) -> ExitCode {
    let path = match command.store.existing() {
        Ok(path) => path,
        Err(code) => return code,
    };
    let options = BackupOptions { force: command.force, deep: command.deep };
    let bar = progress::copy_bar();
    let mut progress = |copied| progress::show(&bar, copied);
    let made = sqlite::backup(&path, &command.file, options, &mut progress);
    drop(bar);
    let made = match made {
        Ok(made) => made,
        Err(error) => return store::fail(&error),
    };
    let written = Written {
        file: command.file.display().to_string(),
        bytes: made.bytes,
        last_event: made.last_event,
        incarnation: made.incarnation,
        checked: if command.deep { "deep" } else { "quick" },
    };
    output::show(format, &told(&written, &command.store.store), &written);
    ExitCode::SUCCESS
}

fn told(written: &Written, store: &str) -> String {
    let Written { file, bytes, last_event, checked, .. } = written;
    format!(
        "{file} is whole: {}, up to event {last_event}. It passed a {checked} check.\n\
         Put it back with `windlass restore {file} --store {store} --force`.\n",
        size(*bytes)
    )
}
