//! A look at a store from outside, for those who ask whether it is well. Nothing is changed, not even a schema that is
//! old.

use windlass_kernel::Timestamp;

use crate::{Owner, migrate::Migration, read::SessionView};

/// What was seen of a store.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The newest step of its schema; 0 if there is none.
    pub schema: u32,
    /// The newest step that this program knows.
    pub known: u32,
    /// Is it newer than this program can serve?
    pub is_too_new: bool,
    /// What the schema ought to have and has not, such as `index jobs_ready`. Only a schema that is up to date is
    /// compared.
    pub missing: Vec<String>,
    /// What is there and is not Windlass's, such as `trigger t on jobs` or `view v`. Tables of the user's own may stand
    /// beside ours; a trigger on one of ours runs with every write.
    pub foreign: Vec<String>,
    /// What time it is by the clock of the database, if that is not this machine's.
    pub now: Option<Timestamp>,
    /// When it last wrote something down.
    pub last_commit_at: Option<Timestamp>,
    /// Why it cannot be written to, if so.
    pub read_only: Option<String>,
    /// What was acknowledged and is gone, if something is.
    pub lost: Option<String>,
    /// The process that has it open, if it is a file and somebody has.
    pub owner: Option<Owner>,
    /// Workers that hold jobs.
    pub sessions: Vec<SessionView>,
    /// Dead letters that nobody has dealt with.
    pub letters: u64,
    /// Rows of the inbox that could not be promoted.
    pub set_aside: u64,
    /// What it takes on the disk.
    pub size_bytes: u64,
    /// What its write-ahead log takes besides, if that is a file of its own.
    pub journal_bytes: Option<u64>,
}

impl Survey {
    /// Is its schema the one that this program makes? Only then is it known what its tables mean.
    pub fn is_up_to_date(&self) -> bool {
        self.schema == self.known
    }
}

/// A step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct MigrationStep {
    /// Its place, from 1, without a gap.
    pub number: u32,
    /// What it is for, in a sentence.
    pub about: &'static str,
    /// The oldest number whose programs can still serve the database after this step.
    pub served_from: u32,
    /// What runs.
    pub sql: &'static str,
}

/// The steps, in their order.
pub(crate) fn steps(all: &'static [Migration]) -> Vec<MigrationStep> {
    let step = |migration: &'static Migration| {
        let first = migration.sql.lines().next().unwrap_or_default();
        let Migration { number, served_from, sql } = *migration;
        MigrationStep { number, about: first.trim_start_matches("-- "), served_from, sql }
    };
    all.iter().map(step).collect()
}

/// What of this should be there and is not.
pub(crate) fn missing<'a>(
    wanted: impl Iterator<Item = String> + 'a,
    found: &[String],
) -> Vec<String> {
    wanted.filter(|name| !found.contains(name)).collect()
}
