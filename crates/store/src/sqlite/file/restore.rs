//! Restore: a backup becomes the database, under a new incarnation.
//!
//! What was acknowledged after the backup is gone, and workers may still hold leases from then. So the
//! incarnation is raised above everything that is known, and above what can have been: no epoch is ever
//! granted twice. Leases of an earlier incarnation end when the store is opened (`writer`), so an old
//! worker's write is refused, whether its lease is in the backup or not.
//!
//! What stood there is kept aside, whole, before anything is taken away. A process that dies on the way
//! leaves the old database, or none with the old one kept aside, or the new one: never a mixture.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use windlass_kernel::{Epoch, Timestamp};

use super::{
    backup,
    copy::{Copied, CopySource, Part, sync_folder},
    lock::Lock,
    mark::{self, Mark},
    open::{self, SET_INCARNATION, beside},
    private,
};
use crate::{
    Error,
    sqlite::{BackedUp, BackupOptions},
};

/// A backup that was restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// What is there now.
    pub restored: BackedUp,
    /// Where the database that stood there is kept.
    pub kept_aside: Option<PathBuf>,
    /// What the backup has that is not Windlass's, such as `trigger t on jobs`.
    pub foreign: Vec<String>,
}

/// Puts the backup `source` in the place of the database `target`.
pub fn restore(
    source: &Path,
    target: &Path,
    options: BackupOptions,
    now: Timestamp,
    progress: &mut dyn FnMut(Copied),
) -> Result<Restored, Error> {
    let source = CopySource::open(source)?;
    let target = &open::real_path(target)?;
    if source.is(target) {
        return Err(Error::open(target, "it is the backup itself"));
    }
    let _lock = Lock::take(target, None)?;
    if target.exists() && !options.force {
        return Err(Error::Exists { path: target.display().to_string() });
    }
    let part = Part::new(&source, target)?;
    let mut noted = source.identity()?;
    source.check()?;
    part.fill(&source, progress)?;
    noted.point.incarnation = next_incarnation(noted.point.incarnation, target, now);
    let incarnation = noted.point.incarnation;
    part.change(|copy| copy.execute(SET_INCARNATION, [incarnation]).map(drop))?;
    let copy = CopySource::open(part.path())?;
    copy.check()?;
    if copy.identity()? != noted {
        return Err(Error::Damaged("the copy is not what was copied".to_owned()));
    }
    drop(copy);
    if options.deep {
        backup::check_deep(part.path())?;
    }
    let foreign = source.foreign()?;
    let bytes = fs::metadata(part.path()).map_or(0, |found| found.len());
    let kept_aside = keep_aside(target)?;
    part.keep(target, true)?;
    // Without a mark the first opening would take it for a copy and raise the incarnation once more.
    let last_event = noted.point.event;
    Mark::new(target, noted).close();
    let restored = BackedUp { bytes, last_event, incarnation };
    Ok(Restored { restored, kept_aside, foreign })
}

/// 2020-01-01T00:00:00Z.
const EPOCH_OF_HOURS: i64 = 1_577_836_800_000_000;

/// Above all that is known: in the backup, in the database that is replaced, and in its mark. All of them
/// may be older than what was lost with a disk, so it is also the number of hours since 2020 at the least:
/// whatever was restored from the same backup in an earlier hour has a smaller one.
fn next_incarnation(backup: u32, target: &Path, now: Timestamp) -> u32 {
    let marked = mark::read(target).map(|noted| noted.point.incarnation);
    let replaced = CopySource::open(target).and_then(|it| it.identity());
    let replaced = replaced.ok().map(|noted| noted.point.incarnation);
    let known = [Some(backup), marked, replaced].into_iter().flatten().max().unwrap_or(0);
    let since = now.since(Timestamp::from_micros(EPOCH_OF_HOURS));
    let hours = since.as_secs() / Duration::from_secs(3600).as_secs();
    let hours = u32::try_from(hours).unwrap_or(u32::MAX).min(Epoch::INCARNATION_MAX / 2);
    (known + 1).max(hours)
}

/// The parts of a database, the file itself last: as long as it is there, the old one is whole.
const PARTS: [&str; 4] = ["-wal", "-journal", "-mark", ""];

/// Keeps what stands there under another name, then takes it away. The mark stays: the new database is
/// ahead of it.
fn keep_aside(target: &Path) -> Result<Option<PathBuf>, Error> {
    let is_there = |ending: &&str| fs::symlink_metadata(beside(target, ending)).is_ok();
    if !["", "-wal", "-journal"].iter().any(is_there) {
        return Ok(None);
    }
    let free = |aside: &PathBuf| !PARTS.iter().any(|ending| beside(aside, ending).exists());
    let mut names = (1..).map(|number| beside(target, &format!(".old-{number}")));
    let aside = names.find(free).expect("numbers do not end");
    for ending in PARTS.iter().filter(|ending| is_there(ending)) {
        let (from, to) = (beside(target, ending), beside(&aside, ending));
        // The mark stays where it is and is written in place, so what is kept aside needs one of its own.
        let kept = if *ending == "-mark" { copy(&from, &to) } else { link(&from, &to) };
        let kept = kept.and_then(|()| private::claim(&fs::File::open(&to)?));
        kept.map_err(|error| Error::open(&to, error))?;
    }
    sync_folder(target)?;
    // The database goes before its log: a log alone is nothing, a database without its log is a loss.
    for ending in ["", "-wal", "-journal", "-shm"] {
        let path = beside(target, ending);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::open(&path, error));
            }
            _ => {}
        }
        sync_folder(target)?;
    }
    Ok(Some(aside))
}

/// A second name for a file, or a copy where a file can have only one.
fn link(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::hard_link(from, to).or_else(|_| copy(from, to))
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::open(to)?.sync_all()
}
