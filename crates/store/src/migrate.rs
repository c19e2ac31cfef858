//! Migrations: numbered SQL files that bring a database up to date, forward only.
//!
//! They run at start, while the store's lock is held. A database that is newer than the program is refused: an
//! old program must not guess what new rows mean. On PostgreSQL, where two versions serve one database while it
//! is upgraded, a step says which programs can still serve after it. A step that only expands keeps them all; one
//! that contracts, by taking away what they use, comes a version later, when none of them runs any more.

use crate::Error;

/// One step of the schema.
pub(crate) struct Migration {
    /// Its place, from 1, without a gap.
    pub(crate) number: u32,
    /// The oldest number whose programs can still serve the database after this step. SQLite has one owner at
    /// a time and does not ask.
    pub(crate) served_from: u32,
    /// What runs.
    pub(crate) sql: &'static str,
}

/// The steps of SQLite.
pub(crate) const SQLITE: &[Migration] = &[
    Migration {
        number: 1,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0001_jobs.sql"),
    },
    Migration {
        number: 2,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0002_timers.sql"),
    },
    Migration {
        number: 3,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0003_progress.sql"),
    },
    Migration {
        number: 4,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0004_admission.sql"),
    },
    Migration {
        number: 5,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0005_schedules.sql"),
    },
    Migration {
        number: 6,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0006_tokens.sql"),
    },
    Migration {
        number: 7,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0007_words.sql"),
    },
    Migration {
        number: 8,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0008_lists.sql"),
    },
    Migration {
        number: 9,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0009_claims.sql"),
    },
    Migration {
        number: 10,
        served_from: 1,
        sql: include_str!("../migrations/sqlite/0010_ledger.sql"),
    },
];

/// The steps of PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: &[Migration] = &[
    Migration {
        number: 1,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0001_jobs.sql"),
    },
    Migration {
        number: 2,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0002_timers.sql"),
    },
    Migration {
        number: 3,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0003_progress.sql"),
    },
    Migration {
        number: 4,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0004_admission.sql"),
    },
    Migration {
        number: 5,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0005_schedules.sql"),
    },
    Migration {
        number: 6,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0006_tokens.sql"),
    },
    Migration {
        number: 7,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0007_rows.sql"),
    },
    Migration {
        number: 8,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0008_restored.sql"),
    },
    Migration {
        number: 9,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0009_words.sql"),
    },
    Migration {
        number: 10,
        served_from: 1,
        sql: include_str!("../migrations/postgres/0010_lists.sql"),
    },
    // A program that knows no ledgers would not read the waits of durable jobs, and would drop what their rows say of them.
    Migration {
        number: 11,
        served_from: 11,
        sql: include_str!("../migrations/postgres/0011_ledger.sql"),
    },
];

/// The steps that a database at `found` still needs.
pub(crate) fn missing(all: &[Migration], found: u32) -> Result<&[Migration], Error> {
    let known = all.last().map_or(0, |migration| migration.number);
    if found > known {
        return Err(Error::Newer { found, known });
    }
    Ok(&all[found as usize..])
}

/// The same, for a database that says from which number on its programs can serve it: a newer one that ours can
/// serve needs nothing.
#[cfg(feature = "postgres")]
pub(crate) fn missing_if_served(
    all: &[Migration],
    found: u32,
    served_from: u32,
) -> Result<&[Migration], Error> {
    let known = all.last().map_or(0, |migration| migration.number);
    if found > known && served_from <= known { Ok(&[]) } else { missing(all, found) }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    #[test]
    fn migrations_are_numbered_without_a_gap_and_none_is_forgotten() {
        check_numbers("sqlite", SQLITE);
        #[cfg(feature = "postgres")]
        check_numbers("postgres", POSTGRES);
    }

    fn check_numbers(backend: &str, migrations: &[Migration]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(backend);
        let mut files: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        assert_eq!(files.len(), migrations.len());
        assert!(migrations.is_sorted_by_key(|it| it.served_from), "an end is an end");
        for ((number, migration), file) in (1..).zip(migrations).zip(files) {
            assert_eq!(migration.number, number);
            assert!((1..=number).contains(&migration.served_from), "{file} is served by nobody");
            assert!(file.starts_with(&format!("{number:04}_")), "{file} is not number {number}");
            assert!(migration.sql.starts_with("-- "), "{file} begins without a sentence");
        }
    }

    #[test]
    fn what_is_missing_runs_in_order_and_what_is_newer_is_refused() {
        let all = [1, 2, 3].map(|number| Migration { number, served_from: 1, sql: "" });
        let numbers = |found| -> Vec<u32> {
            missing(&all, found).unwrap().iter().map(|migration| migration.number).collect()
        };
        assert_eq!(numbers(0), [1, 2, 3]);
        assert_eq!(numbers(2), [3]);
        assert!(numbers(3).is_empty());
        assert!(matches!(missing(&all, 4), Err(Error::Newer { found: 4, known: 3 })));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_newer_database_is_served_by_those_that_it_names() {
        let all = [1, 2, 3].map(|number| Migration { number, served_from: 1, sql: "" });
        let count = |found, from| missing_if_served(&all, found, from).map(<[Migration]>::len);
        assert_eq!(count(4, 3).unwrap(), 0);
        assert_eq!(count(9, 1).unwrap(), 0);
        assert_eq!(count(2, 1).unwrap(), 1);
        assert!(matches!(count(4, 4), Err(Error::Newer { found: 4, known: 3 })));
    }
}
