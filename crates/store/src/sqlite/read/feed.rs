//! Reads the feed: events of all jobs, in the order of the store.

use rusqlite::{Connection, OptionalExtension as _, params};
use windlass_kernel::Timestamp;

use crate::{
    Error, log,
    read::{Feed, FeedFiller, Scope},
    sqlite::{
        SqlResult,
        row::column::{text_of, time_of},
    },
};

/// Served by the primary key of the log.
const FEED: &str = "
    SELECT id, at, tenant, count, iif(?3 IS NULL OR tenant = ?3, events, '[]') FROM log
    WHERE id >= coalesce((SELECT max(id) FROM log WHERE id <= ?1 + 1), 0) ORDER BY id LIMIT ?2";

const FEED_FROM: &str = "SELECT value FROM meta WHERE name = 'feed_from'";

/// From this number on no event was ever taken out.
pub(crate) fn read_feed_from(connection: &Connection) -> SqlResult<u64> {
    let mut from = connection.prepare_cached(FEED_FROM)?;
    Ok(from.query_row([], |row| row.get(0)).optional()?.unwrap_or(1))
}

/// Events after a number, in the order of the store. There is one writer, so a number that is there
/// will never have another before it.
pub(crate) fn read_feed(
    connection: &Connection,
    scope: &Scope,
    after: u64,
    limit: u32,
) -> SqlResult<Result<Feed, Error>> {
    let from = read_feed_from(connection)?;
    if after.saturating_add(1) < from {
        return Ok(Err(Error::FeedGone { from }));
    }
    if Feed::is_beyond(after) {
        return Ok(Ok(Feed::empty(after)));
    }
    let mut statement = connection.prepare_cached(FEED)?;
    let mut found = statement.query(params![after, limit.max(1), scope.word()])?;
    let mut filler = FeedFiller::new(after, limit);
    while let Some(row) = found.next()? {
        let (first, at): (u64, Timestamp) = (row.get(0)?, time_of(row, 1)?);
        let text: String = row.get(4)?;
        let lines = match log::lines(&text) {
            Ok(lines) => lines,
            Err(error) => return Ok(Err(error)),
        };
        if filler.add(first, row.get(3)?, at, &text_of(row, 2)?, &lines) {
            break;
        }
    }
    Ok(Ok(filler.feed))
}

/// Served by the primary key of the log.
pub(crate) const FEED_END: &str = "SELECT id + count - 1 FROM log ORDER BY id DESC LIMIT 1";

/// The number of the newest event.
pub(crate) fn read_feed_end(connection: &Connection) -> SqlResult<u64> {
    let mut statement = connection.prepare_cached(FEED_END)?;
    let newest = statement.query_row([], |row| row.get::<_, u64>(0)).optional()?;
    Ok(newest.unwrap_or(0).max(read_feed_from(connection)?.saturating_sub(1)))
}
