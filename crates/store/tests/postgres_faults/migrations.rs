//! Schemas that are made, half made, or newer than we are.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::time::timeout;
use windlass_store::{Commit as _, Error, postgres::Postgres};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    load::{PATIENCE, node},
};

/// The first part of the lock of migrations.
const LOCK_CLASS: i64 = 0x57_4c_41_53 + 1;

#[test]
fn nodes_that_open_an_empty_database_at_once_all_find_one_store() {
    for round in 1..=count(3, 30) {
        let home = SchemaHome::new();
        let runtime = runtime(4);
        let open = |_| runtime.spawn(Postgres::open(home.options.clone()));
        let nodes: Vec<_> = (0..4).map(open).collect();
        let nodes: Vec<_> =
            nodes.into_iter().map(|node| runtime.block_on(node).unwrap().unwrap()).collect();
        for (number, store) in (1..).zip(&nodes) {
            let writes = vec![write(enqueue(number, plain()))];
            runtime.block_on(store.commit(writes.into())).unwrap().remove(0).unwrap();
        }
        assert_eq!(home.count("jobs"), nodes.len() as u64, "round {round}");
        let met = home.sql().query("SELECT value FROM meta WHERE name = 'incarnation'", &[]);
        assert_eq!(met[0].get::<_, &str>(0), "0", "nobody met another server");
    }
}

/// In a process of its own: opens the store.
#[test]
fn child_opens() {
    let Some(address) = child_path() else { return };
    let home = SchemaHome::at(address.to_str().unwrap());
    node(&runtime(2), &home.options);
}

#[test]
fn a_node_that_is_killed_in_a_migration_leaves_nothing_half_made() {
    let mut halted = 0;
    for round in 0..count(5, 50) {
        let home = SchemaHome::new();
        let shell = home.sql();
        let mut child = child("migrations::child_opens", home.address().as_ref()).spawn().unwrap();
        wait_until_it_migrates(&shell, &home.options.schema);
        thread::sleep(Duration::from_millis(round % 5 * 8));
        child.kill().unwrap();
        child.wait().unwrap();
        let is_there = shell.query("SELECT to_regclass('meta') IS NOT NULL", &[]);
        halted += u64::from(!is_there[0].get::<_, bool>(0));
        let runtime = runtime(2);
        let begun = Instant::now();
        let store = node(&runtime, &home.options);
        assert!(begun.elapsed() < Duration::from_secs(10), "a dead node holds the lock");
        let sql = "SELECT count(*) FROM meta WHERE name = 'store_id'";
        assert_eq!(shell.query(sql, &[])[0].get::<_, i64>(0), 1);
        let writes = vec![write(enqueue(1, plain()))];
        runtime.block_on(store.commit(writes.into())).unwrap().remove(0).unwrap();
    }
    println!("{halted} were killed in a migration");
    assert!(halted > 0, "none was in a migration when it was killed");
}

/// Somebody holds the lock of this schema's migrations.
fn wait_until_it_migrates(shell: &postgres::Shell, schema: &str) {
    let sql = "
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = $2::bigint::oid
            AND objid::bigint = hashtext($1)::bigint & 4294967295";
    let begun = Instant::now();
    while shell.query(sql, &[&schema, &LOCK_CLASS]).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not begin");
        thread::sleep(Duration::from_micros(200));
    }
}

/// A transaction that holds the lock of migrations is what a node leaves that is in the middle of one.
#[test]
fn a_migration_waits_for_another_and_goes_on_when_that_one_dies() {
    let home = SchemaHome::new();
    let other = home.sql();
    let schema = &home.options.schema;
    other.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK_CLASS}, hashtext('{schema}'))"));
    let runtime = runtime(2);
    let opening = runtime.spawn(Postgres::open(home.options.clone()));
    thread::sleep(Duration::from_millis(300));
    assert!(!opening.is_finished(), "two migrate at once");
    drop(other);
    assert!(runtime.block_on(opening).unwrap().is_ok());
}

/// What others hold that look whether a store is up to date keeps nobody waiting who does the same.
#[test]
fn nodes_that_find_nothing_to_do_do_not_wait_for_each_other() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    drop(node(&runtime, &home.options));
    let (other, schema) = (home.sql(), &home.options.schema);
    let lock = "pg_advisory_xact_lock_shared";
    other.run(&format!("BEGIN; SELECT {lock}({LOCK_CLASS}, hashtext('{schema}'))"));
    let open = Postgres::open(home.options.clone());
    let opened = runtime.block_on(async { timeout(PATIENCE / 2, open).await });
    assert!(opened.is_ok_and(|opened| opened.is_ok()), "it waits for those who look");
}

/// It may find a step that it cannot serve after: so it looks when the step is done.
#[test]
fn a_store_that_is_being_migrated_is_waited_for_by_whoever_would_find_nothing_to_do() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    drop(node(&runtime, &home.options));
    let (other, schema) = (home.sql(), &home.options.schema);
    other.run(&format!("BEGIN; SELECT pg_advisory_xact_lock({LOCK_CLASS}, hashtext('{schema}'))"));
    other.run("UPDATE meta SET value = '99' WHERE name IN ('schema', 'schema_served_by')");
    let opening = runtime.spawn(Postgres::open(home.options.clone()));
    thread::sleep(Duration::from_millis(300));
    assert!(!opening.is_finished(), "it goes by what stood there before");
    other.run("COMMIT");
    let told = runtime.block_on(opening).unwrap().err().unwrap();
    assert!(matches!(told, Error::Newer { found: 99, .. }), "{told:?}");
}

#[test]
fn a_newer_schema_is_refused() {
    let home = SchemaHome::new();
    let runtime = runtime(2);
    drop(node(&runtime, &home.options));
    let shell = home.sql();
    shell.run("UPDATE meta SET value = '99' WHERE name IN ('schema', 'schema_served_by')");
    let told = runtime.block_on(Postgres::open(home.options.clone())).err().unwrap();
    assert!(matches!(told, Error::Newer { found: 99, .. }), "{told:?}");
    assert_eq!(told.code(), "STORE_NEWER");
    // What is newer and says that we can serve it is not touched.
    shell.run("UPDATE meta SET value = '1' WHERE name = 'schema_served_by'");
    drop(node(&runtime, &home.options));
    let schema = shell.query("SELECT value FROM meta WHERE name = 'schema'", &[]);
    assert_eq!(schema[0].get::<_, &str>(0), "99");
}
