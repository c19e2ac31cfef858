//! `windlass restore`: a backup becomes the database, and says what has to be done next.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use serde::Serialize;
use windlass_kernel::Timestamp;
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
pub(crate) struct Restore {
    /// The backup.
    file: PathBuf,
    #[command(flatten)]
    store: StoreArg,
    /// Replace the database if it is there. It is kept under another name.
    #[arg(long)]
    force: bool,
    /// Check the whole history first, as `windlass doctor --deep` does.
    #[arg(long)]
    deep: bool,
}

/// What is there now, for programs.
#[derive(Serialize)]
struct Done {
    store: String,
    bytes: u64,
    last_event: u64,
    incarnation: u32,
    kept_aside: Option<String>,
}

pub(crate) fn run(command: &Restore, view: &View) -> Result<(), Trouble> {
    let path = command.store.path()?;
    if !command.file.is_file() {
        let what = format!("there is no backup {}", command.file.display());
        return Err(Trouble::not_found(what).then("Make one with: windlass backup FILE"));
    }
    let options = BackupOptions { force: command.force, deep: command.deep };
    let bar = progress::copy_bar();
    let mut progress = |copied| progress::show(&bar, copied);
    let restored = sqlite::restore(&command.file, &path, options, now(), &mut progress);
    drop(bar);
    let done = restored.map_err(|error| Trouble::of_store(&error))?;
    if !done.foreign.is_empty() {
        view.say(&format!(
            "The backup has what Windlass did not make: {}.\nA trigger runs with each write. Look at it before you serve this.",
            done.foreign.join(", ")
        ));
    }
    let done = Done {
        store: path.display().to_string(),
        bytes: done.restored.bytes,
        last_event: done.restored.last_event,
        incarnation: done.restored.incarnation,
        kept_aside: done.kept_aside.map(|path| path.display().to_string()),
    };
    output::show(view.output, &told(&done, view.width), &done);
    Ok(())
}

/// What has to be done after a restore.
const NEXT: [&str; 3] = [
    "Start Windlass on it. All leases from before end then; their workers get STALE_ATTEMPT.",
    "Send again what was accepted after the backup, under the same keys.",
    "Let whoever follows the feed read the jobs anew: event numbers go on from the backup.",
];

fn told(done: &Done, width: usize) -> String {
    let Done { store, bytes, last_event, incarnation, kept_aside } = done;
    let size = size(*bytes);
    let mut lines = vec![format!(
        "{store} is restored: {size}, up to event {last_event}, incarnation {incarnation}."
    )];
    lines.extend(kept_aside.iter().map(|aside| format!("What stood there is kept as {aside}.")));
    lines.push("What happened after the backup is gone. Next:".to_owned());
    let mut text: String = lines.iter().map(|line| wrapped(line, 0, width) + "\n").collect();
    for (number, next) in (1..).zip(NEXT) {
        text.push_str(&format!("  {number}. {}\n", wrapped(next, 5, width)));
    }
    text
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
