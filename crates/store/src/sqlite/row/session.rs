//! Sessions of workers: their rows.

use rusqlite::Connection;

use super::column::{text_of, time_of};
use crate::{read::SessionView, sqlite::SqlResult};

/// A session that never had a lease is only a name.
const SESSION_VIEWS: &str = "
    SELECT worker, lapses_at, renewals,
        (SELECT count(*) FROM jobs WHERE lease_session = sessions.id)
    FROM sessions WHERE lapses_at > 0 ORDER BY worker";

/// Every session, with how much it holds.
pub(crate) fn read_sessions(connection: &Connection) -> SqlResult<Vec<SessionView>> {
    let mut statement = connection.prepare_cached(SESSION_VIEWS)?;
    let rows = statement.query_map([], |row| {
        let (worker, lapses_at) = (text_of(row, 0)?, time_of(row, 1)?);
        Ok(SessionView { worker, lapses_at, renewals: row.get(2)?, held: row.get(3)? })
    })?;
    rows.collect()
}
