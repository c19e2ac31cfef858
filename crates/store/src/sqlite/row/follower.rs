//! Marks: how far those have come who follow the feed.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::MarkName;

use crate::{commit::Changes, sqlite::SqlResult};

const MARK: &str = "SELECT number FROM marks WHERE name = ?1";

/// How far a follower has come.
pub(crate) fn read_mark(connection: &Connection, name: &MarkName) -> SqlResult<Option<u64>> {
    let mut statement = connection.prepare_cached(MARK)?;
    statement.query_row([name.as_str()], |row| row.get(0)).optional()
}

/// It never goes back.
const SAVE: &str = "
    INSERT INTO marks (name, number) VALUES (?1, ?2)
    ON CONFLICT DO UPDATE SET number = max(number, excluded.number)";

/// Saves how far followers have come.
pub(crate) fn save(connection: &Connection, changes: &Changes) -> SqlResult<()> {
    for (name, number) in &changes.marks {
        connection.prepare_cached(SAVE)?.execute(params![name.as_str(), number])?;
    }
    Ok(())
}
