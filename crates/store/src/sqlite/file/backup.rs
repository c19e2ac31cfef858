//! Backup: a copy of the database of one moment, in one file, checked before it gets its name.
//!
//! It needs no lock: the database may be served meanwhile, by this process or another. What was
//! acknowledged before it began is in it. An existing file is never written over unless that was asked
//! for, and a database that is or was served is never written over at all.

use std::{fs, path::Path};

use super::{
    copy::{Copied, CopySource, Part},
    open::beside,
};
use crate::{Error, sqlite::check::check};

/// How a backup is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct BackupOptions {
    /// Replace a file that is there.
    pub force: bool,
    /// Read the whole history of the copy, against every rule.
    pub deep: bool,
}

/// A backup that was made, or restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUp {
    /// Its size.
    pub bytes: u64,
    /// The number of its last event.
    pub last_event: u64,
    /// The incarnation of the store in it.
    pub incarnation: u32,
}

/// Copies the database at `source` to the file `target`.
pub fn backup(
    source: &Path,
    target: &Path,
    options: BackupOptions,
    progress: &mut dyn FnMut(Copied),
) -> Result<BackedUp, Error> {
    let source = CopySource::open(source)?;
    check_target(&source, target, options.force)?;
    let part = Part::new(&source, target)?;
    let noted = source.identity()?;
    part.fill(&source, progress)?;
    let copy = CopySource::open(part.path())?;
    copy.check()?;
    if copy.identity()? != noted {
        return Err(Error::Damaged("the copy is not what was copied".to_owned()));
    }
    drop(copy);
    if options.deep {
        check_deep(part.path())?;
    }
    let bytes = fs::metadata(part.path()).map_or(0, |found| found.len());
    check_target(&source, target, options.force)?;
    part.keep(target, options.force)?;
    let (last_event, incarnation) = (noted.point.event, noted.point.incarnation);
    Ok(BackedUp { bytes, last_event, incarnation })
}

/// What stands beside a database that is or was served.
const OF_A_STORE: [&str; 4] = ["-wal", "-journal", "-mark", "-lock"];

fn check_target(source: &CopySource, target: &Path, force: bool) -> Result<(), Error> {
    if target.is_dir() {
        return Err(Error::open(target, "it is a folder"));
    }
    if source.is(target) {
        return Err(Error::open(target, "it is the database itself"));
    }
    for ending in OF_A_STORE {
        let other = beside(target, ending);
        if other.exists() {
            let why = format!("{} stands beside it: it is a database in use", other.display());
            return Err(Error::open(target, why));
        }
    }
    if fs::symlink_metadata(target).is_ok() && !force {
        return Err(Error::Exists { path: target.display().to_string() });
    }
    Ok(())
}

/// Refuses a database whose history breaks a rule.
pub(crate) fn check_deep(path: &Path) -> Result<(), Error> {
    let report = check(path)?;
    let Some(first) = report.violations.first() else { return Ok(()) };
    let more = report.violations.len() as u64 + report.more - 1;
    let path = path.display();
    Err(Error::Damaged(format!("{path} breaks a rule, and {more} more: {first}")))
}
