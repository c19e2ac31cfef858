//! The mark: a note beside the database, `<database>-mark`, of how far its history went.
//!
//! SQLite drops what it cannot read at the end of its write-ahead log, and knows nothing of a log that
//! was deleted or of an old copy that was put in the database's place. The mark does: a database that
//! ends before it has lost something that was acknowledged, and is refused.
//!
//! The mark is never ahead of the disk: it is written after a commit has returned. It may be behind, for
//! it is written at most once a second. It is only an alarm: that it could not be written stops nothing,
//! and a mark that cannot be read counts as none.

use std::{
    fs::{self, File},
    io::{self, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::{copy::sync_folder, open::beside, private};
use crate::Error;

/// How far a store came. A later incarnation is further, wherever its events end: it was begun on
/// purpose, from an older copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) incarnation: u32,
    /// The number of the last event.
    pub(crate) event: u64,
}

/// Which store, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) store: String,
    pub(crate) point: Point,
}

impl Noted {
    /// Always of the same length, so that it can be written over.
    fn to_line(&self) -> String {
        let Point { incarnation, event } = self.point;
        format!("windlass-mark 1 {} {incarnation:010} {event:020}\n", self.store)
    }

    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.strip_suffix('\n')?.split(' ').collect();
        let ["windlass-mark", "1", store, incarnation, event] = fields[..] else { return None };
        let point = Point { incarnation: incarnation.parse().ok()?, event: event.parse().ok()? };
        Some(Self { store: store.to_owned(), point })
    }
}

/// What the mark of this database says.
pub(crate) fn read(database: &Path) -> Option<Noted> {
    Noted::parse(&fs::read_to_string(beside(database, "-mark")).ok()?)
}

/// Compares what was noted with what is stored, and refuses a database that has lost something.
///
/// A database without a store id is new or empty: then what was noted is gone altogether. Another store
/// than the one that was noted was put there on purpose.
pub(crate) fn check(
    database: &Path,
    noted: Option<&Noted>,
    stored: Option<&Noted>,
) -> Result<(), Error> {
    let Some(noted) = noted.filter(|noted| noted.point > Point::default()) else { return Ok(()) };
    let found = match stored {
        None => "it is empty".to_owned(),
        Some(stored) if stored.store != noted.store || stored.point >= noted.point => return Ok(()),
        Some(stored) => format!("it ends at event {}", stored.point.event),
    };
    let (database, mark) = (database.display(), beside(database, "-mark"));
    Err(Error::Damaged(format!(
        "{database} has lost what was acknowledged: {found}, but event {} was written. Its -wal file was \
         deleted or cut, or an old copy was put in its place. Restore a backup with `windlass restore`, or \
         delete {} to accept the loss",
        noted.point.event,
        mark.display(),
    )))
}

/// The mark of a database that is open.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
    noted: Noted,
    file: Option<File>,
    written_at: Option<Instant>,
}

impl Mark {
    /// How often it is written at the most.
    const EVERY: Duration = Duration::from_secs(1);

    /// The mark of a store that stands here now.
    pub(crate) fn new(database: &Path, noted: Noted) -> Self {
        let mark = Self { path: beside(database, "-mark"), noted, file: None, written_at: None };
        mark.started()
    }

    /// Writes the first note, so that the mark is there from the start, also after a power cut: a database
    /// without one counts as a copy. The next note may follow at once.
    fn started(mut self) -> Self {
        let _ = self.write().and_then(File::sync_all);
        let _ = sync_folder(&self.path);
        self.written_at = None;
        self
    }

    /// Notes what is durable. It is written if the last note is old enough.
    pub(crate) fn note(&mut self, point: Point) {
        if point <= self.noted.point {
            return;
        }
        self.noted.point = point;
        if self.written_at.is_none_or(|at| at.elapsed() >= Self::EVERY) {
            let _ = self.write();
        }
    }

    /// Writes the last note and waits until it is on the disk.
    pub(crate) fn close(mut self) {
        let _ = self.write().and_then(File::sync_all);
    }

    fn write(&mut self) -> io::Result<&File> {
        #[expect(
            clippy::disallowed_methods,
            reason = "how often a note is written, which decides nothing about jobs"
        )]
        let written_at = Instant::now();
        self.written_at = Some(written_at);
        if self.file.is_none() {
            let mut options = private::options();
            let file = options.write(true).create(true).truncate(false).open(&self.path)?;
            self.file = Some(file);
        }
        let file = self.file.as_mut().expect("it was just opened");
        let line = self.noted.to_line();
        file.rewind()?;
        file.write_all(line.as_bytes())?;
        file.set_len(line.len() as u64)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(store: &str, incarnation: u32, event: u64) -> Noted {
        Noted { store: store.to_owned(), point: Point { incarnation, event } }
    }

    #[test]
    fn a_note_reads_back_and_half_a_note_is_none() {
        let note = noted("5f", 3, 1234);
        let line = note.to_line();
        assert_eq!(Noted::parse(&line), Some(note));
        assert_eq!(line.len(), noted("00", u32::MAX, u64::MAX).to_line().len());
        for cut in 0..line.len() {
            assert_eq!(Noted::parse(&line[..cut]), None, "{cut} bytes");
        }
        assert_eq!(Noted::parse(&"\0".repeat(line.len())), None);
    }

    #[test]
    fn only_a_store_that_ends_before_its_own_mark_is_refused() {
        let mark = noted("a", 1, 100);
        for (stored, is_fine) in [
            (Some(noted("a", 1, 100)), true),
            (Some(noted("a", 1, 101)), true),
            (Some(noted("a", 1, 99)), false),
            // A copy that was restored on purpose.
            (Some(noted("a", 2, 50)), true),
            (Some(noted("a", 0, 500)), false),
            (Some(noted("b", 0, 1)), true),
            (None, false),
        ] {
            let result = check(Path::new("w.db"), Some(&mark), stored.as_ref());
            assert_eq!(result.is_ok(), is_fine, "{stored:?}");
            assert!(check(Path::new("w.db"), None, stored.as_ref()).is_ok());
        }
        assert!(check(Path::new("w.db"), Some(&noted("a", 0, 0)), None).is_ok());
    }

    #[test]
    fn a_mark_is_written_at_most_once_a_second_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("w.db");
        let event = || read(&database).unwrap().point.event;
        let mut mark = Mark::new(&database, noted("a", 0, 1));
        let mut note = |event| mark.note(Point { incarnation: 0, event });
        assert_eq!(event(), 1);
        note(2);
        assert_eq!(event(), 2);
        note(3);
        note(1);
        assert_eq!(event(), 2);
        mark.close();
        assert_eq!(event(), 3);
    }
}
