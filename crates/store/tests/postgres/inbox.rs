//! The inbox: how much of it one commit takes.

use std::{
    thread,
    time::{Duration, Instant},
};

use windlass_kernel::Payload;

use crate::common::{postgres::SchemaHome, *};

/// No commit takes more than this, but for the row that goes over it.
const BYTES_MAX: i64 = 4 * 1024 * 1024;

/// What one transaction has written, of all that was promoted. Rows that cannot be read are as heavy as others.
const TAKEN: &str = "
    SELECT max(bytes)::bigint, sum(rows)::bigint, count(*) FROM (
        SELECT sum(octet_length(payload)) AS bytes, count(*) AS rows
        FROM (SELECT xmin, payload FROM jobs UNION ALL SELECT xmin, payload FROM inbox_set_aside) AS taken
        GROUP BY xmin::text) AS commits";

#[test]
fn a_commit_takes_no_more_of_the_inbox_than_it_can_carry() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    let store = runtime.block_on(windlass_store::postgres::Postgres::open(home.options.clone()));
    let mut user = home.user();
    let large = format!("\"{}\"", "x".repeat(Payload::MAX_BYTES_DEFAULT - 2));
    let rows = 24;
    user.begin();
    for number in 1..=rows / 2 {
        let op = enqueue(number, with_payload(&large));
        user.put(&op, windlass_kernel::Timestamp::from_micros(START)).unwrap();
    }
    user.sql(&format!(
        "INSERT INTO inbox (job_id, tenant, at, op, payload)
         SELECT gen_random_uuid(), 'acme', now(), 'no request', repeat('y', {})
         FROM generate_series(1, {})",
        Payload::MAX_BYTES_DEFAULT,
        rows / 2
    ));
    user.sql("COMMIT");
    let begun = Instant::now();
    while home.count("inbox") > 0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is not promoted");
        thread::sleep(Duration::from_millis(20));
    }
    let taken = home.sql().query(TAKEN, &[]);
    let (bytes, all, commits): (i64, i64, i64) =
        (taken[0].get(0), taken[0].get(1), taken[0].get(2));
    println!("{all} rows in {commits} commits, {bytes} bytes in the largest");
    assert_eq!(u128::try_from(all).unwrap(), rows);
    assert!(bytes <= BYTES_MAX + i64::try_from(Payload::MAX_BYTES_DEFAULT).unwrap(), "{bytes}");
    drop(store);
}
