//! Partitions of the log: made ahead of the commits that will need them, and dropped when nothing is left in them.
//!
//! A partition holds the rows of a range of log numbers. It is made as a table of its own and then attached,
//! because that waits for nobody who reads or writes the log.

use std::time::Duration;

use deadpool_postgres::ClientWrapper;
use tokio_postgres::{Error, GenericClient};
use windlass_kernel::Timestamp;

use super::{
    PgResult,
    pipeline::{Ask, run_one},
    types::Time,
};

/// How many log numbers one partition takes: 65,536 commits.
const SIZE: i64 = 1024 * 65_536;

/// How far the log has come, and up to where it has partitions.
const REACHED: &str = "
    SELECT last_value / $1, coalesce((
        SELECT max(substring(relname FROM 5)::bigint) FROM pg_inherits
        JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'log'::regclass), -1)
    FROM log_seq";

/// Makes the partitions that are needed now and next, if they are not there.
pub(super) async fn ensure(client: &impl GenericClient) -> Result<(), Error> {
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

/// Only one node at a time makes partitions.
const LOCK: &str = "SELECT pg_advisory_xact_lock($1, $2)";

/// Looks whether partitions are needed soon, and makes them.
pub(super) async fn look_ahead(client: &ClientWrapper, lock: (i32, i32)) -> Result<(), Error> {
    let row = client.query_one(REACHED, &[&SIZE]).await?;
    if row.get::<_, i64>(1) > row.get::<_, i64>(0) {
        return Ok(());
    }
    client.batch_execute("BEGIN").await?;
    client.execute(LOCK, &[&(lock.0 + 2), &lock.1]).await?;
    let made = ensure(&**client).await;
    client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    made
}

/// For so long a transaction that took a number may still be open. It is far more than any is given.
const OPEN_MAX: Duration = Duration::from_secs(60 * 60);

/// Partitions whose numbers were all given out before this time: a number of a later one was in use by then. The
/// newest two stay, and so does the one before them. Served by the index `feed_seq`.
const OLD: &str = "
    SELECT number FROM (
        SELECT substring(relname FROM 5)::bigint AS number FROM pg_inherits
        JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'log'::regclass) AS partitions
    WHERE number < (SELECT last_value / $1 FROM log_seq) - 1
        AND (SELECT at FROM feed WHERE seq >= (number + 1) * $1 ORDER BY seq LIMIT 1) < $2
    ORDER BY number";

/// Drops the oldest partition that is empty and stays so, if there is one. Its transaction has to end at once,
/// for nobody reads or writes the log meanwhile; and it does not wait for long, because others wait behind it.
pub(super) async fn drop_one(client: &ClientWrapper, now: Timestamp) -> PgResult<bool> {
    let given_out = Ask::new(OLD).with(SIZE).with(Time(now.minus(OPEN_MAX)));
    for row in run_one(client, given_out).await? {
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
