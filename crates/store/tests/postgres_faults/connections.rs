//! No connection to be had, or one that comes back in a state that nobody asked for.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use windlass_kernel::JobId;
use windlass_store::{
    Commit as _, ReadJobs as _, Write, postgres::tokio_postgres::NoTls, read::Scope,
};
use windlass_testkit::{
    postgres::{Cluster, Options},
    random::{self, Chance},
};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Ledger, node},
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
    let cluster = Cluster::start(&Options { fsync: false, settings, ..Options::default() });
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
    let is_told = |told: &[(&str, &str)], what| told.iter().any(|(it, _)| *it == what);
    while begun.elapsed() < Duration::from_secs(2)
        || begun.elapsed() < Duration::from_secs(20)
            && !(is_told(&told, "read") && is_told(&told, "write"))
    {
        take(&mut taken);
        // Now and then the store is faster than the others, and has an answer.
        let written = runtime.block_on(store.commit(one(2))).err();
        let read = runtime.block_on(store.job(&Scope::Every, JobId::from_u128(1))).err();
        told.extend(written.map(|error| ("write", error.code())));
        told.extend(read.map(|error| ("read", error.code())));
    }
    for what in ["write", "read"] {
        assert!(told.contains(&(what, "UNAVAILABLE")), "no {what} was refused: {told:?}");
    }
    assert!(told.iter().all(|(_, code)| *code == "UNAVAILABLE"), "{told:?}");
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
        if let Err(error) = runtime.block_on(store.job(&Scope::Every, id)) {
            failed.push(format!("{error:?}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(other);
    assert!(failed.is_empty(), "{} reads failed, the first with {}", failed.len(), failed[0]);
    runtime.block_on(store.commit(one(2))).unwrap();
}

/// What a caller asked for is done also if it does not wait for the answer. It asks again under the same identity,
/// while the first may still be on its way.
#[test]
fn callers_who_give_up_do_nothing_twice_and_use_up_no_connection() {
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let mut home = SchemaHome::new();
    home.options.connections = 4;
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    let (mut ledger, mut given_up) = (Ledger::default(), 0);
    let mut told = |write: Write, given_up: &mut u64| {
        let writes = std::sync::Arc::new(vec![write]);
        // Longer from time to time, so that it ends.
        for times in 1.. {
            let patience = Duration::from_micros(chance.below(times * 1_000));
            let commit = store.commit(writes.clone());
            match runtime.block_on(async { timeout(patience, commit).await }) {
                Ok(told) => return told.unwrap().remove(0).unwrap(),
                Err(_) => *given_up += 1,
            }
        }
        unreachable!("patience has no end")
    };
    // A quick machine gives up less often, and takes more rounds.
    for number in 1..=1_000 {
        ledger.asked.insert(number);
        told(write(enqueue(number, plain())), &mut given_up);
        ledger.made.insert(number);
        for granted in granted(&told(claim_many("w1", number, 1), &mut given_up)) {
            let (id, epoch) = (granted.job.id, granted.job.epoch);
            assert_eq!(ledger.granted.insert((id.as_u128(), epoch.get()), number), None);
            let settled = answer(&told(write(settle(id, epoch, succeeded())), &mut given_up));
            ledger.settled.insert((id.as_u128(), epoch.get()), settled.state);
        }
        if number >= u128::from(count(15, 300)) && given_up > 20 && ledger.settled.len() > 10 {
            break;
        }
    }
    println!("{given_up} were given up");
    assert!(given_up > 20 && ledger.settled.len() > 10, "too little to prove anything");
    judge(&home, &ledger);
}
