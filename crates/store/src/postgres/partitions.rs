//! Partitions of the log: made ahead of the commits that will need them.
//!
//! A partition holds the rows of a range of log numbers. It is made as a table of its own and then attached,
//! because that waits for nobody who reads or writes the log.

use tokio_postgres::{Error, GenericClient};

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
pub(super) async fn look_ahead(
    client: &deadpool_postgres::ClientWrapper,
    lock: (i32, i32),
) -> Result<(), Error> {
    let row = client.query_one(REACHED, &[&SIZE]).await?;
    if row.get::<_, i64>(1) > row.get::<_, i64>(0) {
        return Ok(());
    }
    client.batch_execute("BEGIN").await?;
    let made = make_alone(client, lock).await;
    // Also when the lock was not to be had: the connection goes back to others.
    client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    made
}

async fn make_alone(
    client: &deadpool_postgres::ClientWrapper,
    lock: (i32, i32),
) -> Result<(), Error> {
    client.execute(LOCK, &[&(lock.0 + 2), &lock.1]).await?;
    ensure(&**client).await
}
