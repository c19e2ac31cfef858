//! No connection to be had, or one that comes back in a state that nobody asked for.

use std::time::{Duration, Instant};

use windlass_kernel::JobId;
use windlass_store::{Store as _, Write, postgres::tokio_postgres::NoTls};
use windlass_testkit::postgres::{Cluster, Options};

use crate::{
    common::{postgres::SchemaHome, *},
    load::node,
};

fn one(number: u128) -> std::sync::Arc<Vec<Write>> {
    vec![write(enqueue(number, plain()))].into()
}

#[test]
fn a_server_without_a_free_connection_is_unavailable_until_there_is_one() {
    let settings = vec![
        ("max_connections", "12".to_owned()),
        ("superuser_reserved_connections", "0".to_owned()),
        ("max_wal_senders", "0".to_owned()),
    ];
    let cluster = Cluster::start(&Options { fsync: false, settings });
    let mut home = SchemaHome::new_in(&cluster);
    let others = home.options.config.clone();
    home.options.config.application_name("store");
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    runtime.block_on(store.commit(one(1))).unwrap();
    let mut taken = Vec::new();
    let take = |taken: &mut Vec<_>| {
        while let Ok((client, connection)) = runtime.block_on(others.connect(NoTls)) {
            runtime.spawn(connection);
            taken.push(client);
        }
    };
    // Others take what is free, and then what the store loses.
    take(&mut taken);
    let end = "
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'store'";
    runtime.block_on(taken[0].batch_execute(end)).unwrap();
    take(&mut taken);
    let begun = Instant::now();
    let mut told = Vec::new();
    while begun.elapsed() < Duration::from_secs(2) {
        take(&mut taken);
        match runtime.block_on(store.commit(one(2))) {
            Ok(_) => {}
            Err(error) => told.push(error.code()),
        }
    }
    assert!(told.len() > 1 && told.iter().all(|code| *code == "UNAVAILABLE"), "{told:?}");
    let read = runtime.block_on(store.job(JobId::from_u128(1)));
    assert_eq!(read.unwrap_err().code(), "UNAVAILABLE");
    drop(taken);
    let begun = Instant::now();
    while runtime.block_on(store.commit(one(2))).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not go on");
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("{} were refused; it went on after {:?}", told.len(), begun.elapsed());
    assert_eq!(home.count("jobs"), 2);
}

/// A node that cannot have the lock for new partitions must not leave its connection in a transaction that
/// has failed: whoever got it next could not even read.
#[test]
fn a_partition_that_cannot_be_made_spoils_no_connection() {
    let mut home = SchemaHome::new();
    // Whoever comes next gets the same one.
    home.options.connections = 1;
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    runtime.block_on(store.commit(one(1))).unwrap();
    let other = home.sql();
    let class = 0x57_4c_41_53 + 2;
    other.run(&format!(
        "BEGIN; SELECT pg_advisory_xact_lock({class}, 'meta'::regclass::oid::bigint::int)"
    ));
    // The next commit is the first of the partition that was made ahead.
    home.sql().run("SELECT setval('log_seq', 1024::bigint * 65536 + 1024)");
    let begun = Instant::now();
    let mut failed = Vec::new();
    while begun.elapsed() < Duration::from_millis(6_500) {
        let id = JobId::from_u128(1);
        if let Err(error) = runtime.block_on(store.job(id)) {
            failed.push(format!("{error:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(other);
    assert!(failed.is_empty(), "{} reads failed, the first with {}", failed.len(), failed[0]);
    runtime.block_on(store.commit(one(2))).unwrap();
}
