//! Reads the feed: events of all jobs, in the order of the store.

use std::collections::HashMap;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::Row;
use windlass_kernel::{TenantId, Timestamp};

use crate::{
    Error, log,
    postgres::{
        Failure, PgResult,
        link::{
            pipeline::{Ask, run_for_row, run_one},
            types::signed,
        },
        row::column::{number, number_32, text_of, time_of},
    },
    read::{Feed, FeedFiller, Scope},
};

const FEED_FROM: &str = "SELECT value::bigint FROM meta WHERE name = 'feed_from'";

/// The first event that is still told.
async fn read_feed_from(client: &ClientWrapper) -> PgResult<u64> {
    number(&run_for_row(client, Ask::new(FEED_FROM), "meta has no feed_from").await?, 0)
}

/// Which rows come next, whose they are and how large. Served by the primary keys of the feed and of the log.
const FEED: &str = "
    SELECT f.first, f.at, log.tenant, f.count, f.seq, octet_length(log.events)::bigint
    FROM (SELECT first, at, seq, count FROM feed
          WHERE first >= coalesce((SELECT max(first) FROM feed WHERE first <= $1::bigint + 1), 0)
          ORDER BY first LIMIT $2) AS f
    JOIN log ON log.seq = f.seq ORDER BY f.first";

const FEED_LINES: &str = "SELECT seq, events FROM log WHERE seq = ANY($1::bigint[])";

/// A row of the log, as the feed tells it.
struct FeedRow {
    first: u64,
    count: u64,
    at: Timestamp,
    tenant: TenantId,
    seq: i64,
    bytes: usize,
}

impl FeedRow {
    fn of(row: &Row) -> PgResult<Self> {
        Ok(Self {
            first: number(row, 0)?,
            at: time_of(row, 1)?,
            tenant: text_of(row, 2)?,
            count: u64::from(number_32(row, 3)?),
            seq: row.try_get(4)?,
            bytes: usize::try_from(number(row, 5)?).unwrap_or(usize::MAX),
        })
    }
}

/// Events after a number, in the order of the store. Numbers are given one commit after the other, so one
/// that is there will never have another before it.
pub(crate) async fn read_feed(
    client: &ClientWrapper,
    scope: &Scope,
    after: u64,
    limit: u32,
) -> PgResult<Feed> {
    let mut filler = FeedFiller::new(after, limit);
    if !Feed::is_beyond(after) {
        fill_feed(client, scope, after, limit, &mut filler).await?;
    }
    // Looked at last: what retention took in the meantime is noticed.
    let from = read_feed_from(client).await?;
    if after.saturating_add(1) < from {
        return Err(Failure::Known(Error::FeedGone { from }));
    }
    Ok(filler.feed)
}

async fn fill_feed(
    client: &ClientWrapper,
    scope: &Scope,
    after: u64,
    limit: u32,
    filler: &mut FeedFiller,
) -> PgResult<()> {
    let most = i64::from(limit.max(1));
    let ask = Ask::new(FEED).with(signed(after)).with(most);
    let rows = run_one(client, ask).await?;
    let mut rows = rows.iter().map(FeedRow::of).collect::<PgResult<Vec<_>>>()?;
    // No more than are needed are fetched: of the first row some may have been told before.
    let (mut events, mut bytes, mut wanted) = (0, 0, Vec::new());
    let mut fits = |row: &FeedRow| {
        let is_wanted = events < u64::from(limit) && bytes < Feed::BYTES_MAX;
        if is_wanted && scope.admits(&row.tenant) {
            events += (row.first + row.count - 1).saturating_sub(after).min(row.count);
            bytes += row.bytes;
            wanted.push(row.seq);
        }
        is_wanted
    };
    let kept = rows.iter().map_while(|row| Some(row).filter(|row| fits(row)).map(drop)).count();
    rows.truncate(kept);
    let lines = run_one(client, Ask::new(FEED_LINES).with(wanted)).await?;
    let mut texts: HashMap<i64, &str> = HashMap::new();
    for row in &lines {
        texts.insert(row.try_get(0)?, row.try_get(1)?);
    }
    for row in &rows {
        let text = match scope.admits(&row.tenant) {
            true => texts.get(&row.seq).copied(),
            false => Some("[]"),
        };
        // Retention took it meanwhile, and says so.
        let Some(text) = text else { return Ok(()) };
        let lines = log::lines(text).map_err(Failure::Known)?;
        if filler.add(row.first, row.count, row.at, &row.tenant, &lines) {
            return Ok(());
        }
    }
    Ok(())
}

/// Served by the primary key of the feed.
const FEED_END: &str = "SELECT first + count - 1 FROM feed ORDER BY first DESC LIMIT 1";

/// The number of the newest event.
pub(crate) async fn read_feed_end(client: &ClientWrapper) -> PgResult<u64> {
    let newest = run_one(client, Ask::new(FEED_END)).await?;
    let newest = newest.first().map(|row| number(row, 0)).transpose()?.unwrap_or(0);
    let from = read_feed_from(client).await?;
    Ok(newest.max(from.saturating_sub(1)))
}
