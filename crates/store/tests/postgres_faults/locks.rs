//! Others who hold locks, cancel statements, or keep a transaction open.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use windlass_kernel::{JobId, State};
use windlass_store::{Commit as _, ReadFeed as _, Write, read::Scope};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Load, node},
};

fn one(number: u128) -> Arc<Vec<Write>> {
    vec![write(enqueue(number, plain()))].into()
}

#[test]
fn a_table_that_another_has_locked_makes_us_unavailable_and_no_more() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    runtime.block_on(store.commit(one(1))).unwrap();
    let other = home.sql();
    other.run("BEGIN; LOCK TABLE jobs");
    let begun = Instant::now();
    let told = runtime.block_on(store.commit(one(2))).unwrap_err();
    let waited = begun.elapsed();
    assert_eq!(told.code(), "UNAVAILABLE", "{told:?}");
    assert!(waited > Duration::from_secs(4) && waited < Duration::from_secs(12), "{waited:?}");
    other.run("ROLLBACK");
    runtime.block_on(store.commit(one(2))).unwrap().remove(0).unwrap();
    assert_eq!(home.count("jobs"), 2);
}

#[test]
fn statements_that_are_cancelled_by_hand_are_answered() {
    let mut home = SchemaHome::new();
    let name = home.options.schema.clone();
    home.options.config.application_name(&name);
    let runtime = runtime(2);
    let load = Load::start(&runtime, &[node(&runtime, &home.options)], 6);
    let shell = home.sql();
    let cancel = "
        SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
        WHERE application_name = $1 AND pid <> pg_backend_pid() AND state = 'active'";
    let mut cancelled = 0;
    while cancelled < count(60, 600) {
        load.wait_for(1);
        let rows = shell.query(cancel, &[&name]);
        cancelled += u64::try_from(rows[0].get::<_, i64>(0)).unwrap();
    }
    load.wait_for(20);
    let ledger = load.stop(&runtime);
    let jobs = judge(&home, &ledger);
    println!("{cancelled} cancelled, {jobs} jobs, errors {:?}", ledger.errors);
}

/// Another client locks two jobs in one order, and a commit of ours needs them in the other: the database
/// ends one of the two, and we go on.
#[test]
fn a_deadlock_with_another_client_is_survived() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    let store = node(&runtime, &home.options);
    for round in 0..u128::from(count(3, 20)) {
        let (low, high) = (round * 10 + 1, round * 10 + 2);
        let made = [low, high].map(|it| write(enqueue(it, plain()))).to_vec();
        runtime.block_on(store.commit(made.into())).unwrap();
        let other = home.sql();
        let lock = |id: u128| {
            let id = format!("{id:032x}");
            format!("SELECT 1 FROM jobs WHERE id = '{id}' FOR UPDATE")
        };
        // It waits for long before it looks for a deadlock, so that ours is the one that ends.
        other.run("SET deadlock_timeout = '20s'; BEGIN");
        other.run(&lock(high));
        let cancel = |id: u128| {
            let (force, grace, reason) = (true, Duration::ZERO, None);
            let job_id = JobId::from_u128(id);
            write(windlass_kernel::ops::Cancel { job_id, force, grace, reason, by: person("ann") })
        };
        let writes = vec![cancel(low), cancel(high)];
        let committing = store.clone();
        let commit = runtime.spawn(async move { committing.commit(writes.into()).await });
        std::thread::sleep(Duration::from_millis(100));
        assert!(!commit.is_finished(), "it waits for the other");
        // Now each waits for the other.
        let locked = other.runtime.block_on(other.client.batch_execute(&lock(low)));
        let is_ours = locked.is_ok();
        let _ = other.runtime.block_on(other.client.batch_execute("ROLLBACK"));
        let told = runtime.block_on(commit).unwrap().unwrap();
        for reply in told {
            assert_eq!(answer(&reply.unwrap()).state, State::Cancelled);
        }
        println!("the database ended {} transaction", if is_ours { "our" } else { "the other" });
    }
}

/// Old snapshots keep dead rows alive; they must not keep us from working.
#[test]
fn a_transaction_that_stays_open_stalls_nobody() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    let nodes = [node(&runtime, &home.options), node(&runtime, &home.options)];
    let other = home.sql();
    other.run(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM jobs; SELECT txid_current()",
    );
    let load = Load::start(&runtime, &nodes, 6);
    let mut seen = 0;
    for _ in 0..count(4, 40) {
        load.wait_for(100);
        let events = runtime.block_on(nodes[0].feed(&Scope::Every, seen, 10_000)).unwrap();
        assert!(!events.events.is_empty(), "the feed stands still");
        seen = events.events.last().unwrap().number;
    }
    let ledger = load.stop(&runtime);
    judge(&home, &ledger);
    assert_eq!(ledger.errors.len(), 0, "{:?}", ledger.errors);
    assert!(ledger.longest_answer < Duration::from_secs(5), "{:?}", ledger.longest_answer);
    other.run("ROLLBACK");
}
