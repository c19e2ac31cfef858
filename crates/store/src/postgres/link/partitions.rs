//! Partitions of the log: made ahead of the commits that will need them, and dropped when nothing is left in them.
//!
//! A partition holds the rows of a range of log numbers. It is made as a table of its own and then attached,
//! because that waits for nobody who reads or writes the log.

use deadpool_postgres::ClientWrapper;
use tokio_postgres::{Client, Error, GenericClient, types::Type};

use super::pipeline::{Ask, run, run_one};
use crate::postgres::PgResult;

/// How many log numbers one partition takes: 65,536 commits.
const SIZE: i64 = 1024 * 65_536;

/// How far the log has come, and up to where it has partitions.
const REACHED: &str = "
    SELECT last_value / $1, coalesce((
        SELECT max(substring(relname FROM 5)::bigint) FROM pg_inherits
        JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'log'::regclass), -1)
    FROM log_seq";

/// Makes the partitions that are needed now and next, if they are not there.
pub(crate) async fn ensure(client: &impl GenericClient) -> Result<(), Error> {
    let row = client.query_one(REACHED, &[&SIZE]).await?;
    let (reached, made): (i64, i64) = (row.get(0), row.get(1));
    for number in (made + 1).max(reached)..=reached + 1 {
        let (from, to) = (number * SIZE, (number + 1) * SIZE);
        client
            .batch_execute(&format!(
                "CREATE TABLE log_{number} (LIKE log INCLUDING CONSTRAINTS INCLUDING STORAGE);
                 ALTER TABLE log ATTACH PARTITION log_{number} FOR VALUES FROM ({from}) TO ({to})"
            ))
            .await?;
    }
    Ok(())
}

/// Are the partitions there that are needed now and next?
pub(crate) async fn are_ahead(client: &Client) -> Result<bool, Error> {
    let rows = client.query_typed(REACHED, &[(&SIZE, Type::INT8)]).await?;
    Ok(rows.first().is_some_and(|row| row.get::<_, i64>(1) > row.get::<_, i64>(0)))
}

/// Only one node at a time makes partitions.
const LOCK: &str = "SELECT pg_advisory_xact_lock($1, $2)";

/// Looks whether partitions are needed soon, and makes them.
pub(crate) async fn look_ahead(client: &ClientWrapper, lock: (i32, i32)) -> Result<(), Error> {
    let row = client.query_one(REACHED, &[&SIZE]).await?;
    if row.get::<_, i64>(1) > row.get::<_, i64>(0) {
        return Ok(());
    }
    client.batch_execute("BEGIN").await?;
    // Also after an error: the connection goes back to the pool, and must not be left inside a
    // transaction.
    let made = match client.execute(LOCK, &[&(lock.0 + 2), &lock.1]).await {
        Ok(_) => ensure(&**client).await,
        Err(error) => Err(error),
    };
    client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    made
}

/// What a node has seen of the log, to know which numbers will never be used any more.
///
/// A number is taken before its row is written, by a transaction that has an id already. So all numbers of the
/// partitions before the one that the sequence has reached belong to transactions that had begun by then; and
/// when the last of these has ended, nothing will be written there.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    seen: Option<Sighting>,
}

#[derive(Debug)]
struct Sighting {
    /// The partition that the sequence had reached.
    reached: i64,
    /// The id that the next transaction would get.
    next: i64,
}

/// It is asked before the ids: whoever takes a number between the two must not be missed.
const REACHED_NOW: &str = "SELECT last_value / $1 FROM log_seq";

/// The oldest transaction that still runs, and the next that will.
const RUNNING: &str = "
    SELECT pg_snapshot_xmin(it)::text::bigint, pg_snapshot_xmax(it)::text::bigint
    FROM pg_current_snapshot() AS it";

impl Watch {
    /// The partition before which nothing will be written any more, if that is known.
    pub(crate) async fn look(&mut self, client: &ClientWrapper) -> PgResult<Option<i64>> {
        let asks = [Ask::new(REACHED_NOW).with(SIZE), Ask::new(RUNNING)];
        let rows = run(client, &asks).await?;
        let (oldest, next): (i64, i64) = (rows[1][0].try_get(0)?, rows[1][0].try_get(1)?);
        let now = Sighting { reached: rows[0][0].try_get(0)?, next };
        match self.seen.take() {
            Some(before) if oldest < before.next => {
                self.seen = Some(before);
                Ok(None)
            }
            before => {
                self.seen = Some(now);
                Ok(before.map(|before| before.reached))
            }
        }
    }
}

/// The newest stay in any case, and so does the one before them.
const OLD: &str = "
    SELECT number FROM (
        SELECT substring(relname FROM 5)::bigint AS number FROM pg_inherits
        JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'log'::regclass) AS partitions
    WHERE number < $1::bigint - 1 ORDER BY number";

/// Drops the oldest partition before this one that is empty, if there is one. Nobody reads or writes the log until
/// its transaction ends; and it does not wait for long, because others wait behind it.
pub(crate) async fn drop_one(client: &ClientWrapper, before: i64) -> PgResult<bool> {
    for row in run_one(client, Ask::new(OLD).with(before)).await? {
        let number: i64 = row.try_get(0)?;
        let is_used = format!("SELECT EXISTS (SELECT FROM log_{number})");
        if client.query_one(&is_used, &[]).await?.try_get(0)? {
            continue;
        }
        client
            .batch_execute(&format!(
                "SET LOCAL lock_timeout = '100ms';
                 ALTER TABLE log DETACH PARTITION log_{number};
                 DROP TABLE log_{number}"
            ))
            .await?;
        return Ok(true);
    }
    Ok(false)
}
