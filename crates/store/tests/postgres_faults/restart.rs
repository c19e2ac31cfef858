//! The server dies, or some of its connections do, while many work.

use std::time::Duration;

use windlass_testkit::{
    postgres::{Cluster, Options, Stop},
    random::{self, Chance},
};

use crate::{
    common::{postgres::SchemaHome, *},
    count,
    judge::judge,
    load::{Load, node},
};

/// How long it may take after a restart until work goes on.
const RECOVERY_MAX: Duration = Duration::from_secs(5);

#[test]
fn a_server_that_dies_loses_nothing_and_work_goes_on_by_itself() {
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let cluster = Cluster::start(&Options::default());
    let home = SchemaHome::new_in(&cluster);
    let runtime = runtime(2);
    let nodes = [node(&runtime, &home.options), node(&runtime, &home.options)];
    let load = Load::start(&runtime, &nodes, 8);
    let mut recoveries = Vec::new();
    for _ in 0..count(3, 20) {
        load.wait_for(20);
        std::thread::sleep(chance.ms(0, 300));
        cluster.restart(Stop::Immediate);
        let recovery = load.wait_for(1);
        assert!(recovery < RECOVERY_MAX, "it took {recovery:?} until work went on");
        recoveries.push(recovery);
    }
    load.wait_for(50);
    let ledger = load.stop(&runtime);
    let jobs = judge(&home, &ledger);
    println!("{jobs} jobs, errors {:?}, work went on after {recoveries:?}", ledger.errors);
    assert!(ledger.errors.contains_key("UNAVAILABLE"), "nobody noticed a restart");
}

#[test]
fn connections_that_are_ended_at_random_are_replaced() {
    let mut chance = Chance::new(u64::from_be_bytes(random::seed()[..8].try_into().unwrap()));
    let mut home = SchemaHome::new();
    let name = home.options.schema.clone();
    home.options.config.application_name(&name);
    let runtime = runtime(2);
    let nodes = [node(&runtime, &home.options), node(&runtime, &home.options)];
    let load = Load::start(&runtime, &nodes, 8);
    let shell = home.sql();
    let mut ended = 0;
    while ended < count(30, 300) {
        load.wait_for(5);
        std::thread::sleep(chance.ms(0, 10));
        ended +=
            terminate(&shell, &name, &["active", "idle in transaction"][..chance_of(&mut chance)]);
    }
    load.wait_for(50);
    let ledger = load.stop(&runtime);
    let jobs = judge(&home, &ledger);
    println!("{ended} connections ended, {jobs} jobs, errors {:?}", ledger.errors);
}

fn chance_of(chance: &mut Chance) -> usize {
    usize::try_from(chance.below(3)).unwrap()
}

/// Ends one connection of the store, at random: one of these states, or any. Gives back how many ended.
fn terminate(shell: &postgres::Shell, name: &str, states: &[&str]) -> u64 {
    let sql = "
        SELECT count(pg_terminate_backend(pid)) FROM (
            SELECT pid FROM pg_stat_activity
            WHERE application_name = $1 AND pid <> pg_backend_pid()
                AND (state = ANY($2) OR cardinality($2) = 0)
            ORDER BY random() LIMIT 1) AS one";
    let rows = shell.query(sql, &[&name, &states]);
    u64::try_from(rows[0].get::<_, i64>(0)).unwrap()
}
