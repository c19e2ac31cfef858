//! Copies of a store: what the original has granted since is never granted again under the same epoch.

use std::process::Stdio;

use windlass_kernel::{Refusal, State};
use windlass_store::{
    Store as _,
    postgres::{Options, Postgres},
    read::Scope,
};
use windlass_testkit::postgres::{self, Cluster};

use crate::{
    common::{postgres::SchemaHome, *},
    load::node,
};

/// Writes all of a home down as SQL.
fn dump(cluster: &Cluster, home: &SchemaHome) -> Vec<u8> {
    let mut command = cluster.client("pg_dump");
    command.args(["--schema", &home.options.schema, "-d"]);
    let output = command.arg(cluster.connection_string("postgres")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn restore(cluster: &Cluster, dump: &[u8]) {
    let mut command = cluster.client("psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"]);
    command.arg(cluster.connection_string("postgres"));
    let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    std::io::Write::write_all(&mut psql.stdin.take().unwrap(), dump).unwrap();
    assert!(psql.wait().unwrap().success());
}

/// Two jobs, of which one is held when the dump is made, and the other is granted after it. Then the store is
/// opened where `restored` says.
fn compare(home: &SchemaHome, restored: impl FnOnce(&[u8]) -> Options) {
    let runtime = runtime(2);
    let tell = |store: &Postgres, write| {
        runtime.block_on(store.commit(vec![write].into())).unwrap().remove(0)
    };
    let store = node(&runtime, &home.options);
    tell(&store, write(enqueue(1, plain()))).unwrap();
    let held = granted(&tell(&store, claim_many("w1", 1, 1)).unwrap()).remove(0).job;
    tell(&store, write(enqueue(2, plain()))).unwrap();
    let dump = dump(Cluster::shared(), home);
    // The copy does not know what the original does from here on.
    let lost = granted(&tell(&store, claim_many("w2", 2, 1)).unwrap()).remove(0).job;
    drop(store);
    let store = node(&runtime, &restored(&dump));
    let job = runtime.block_on(store.job(&Scope::Every, held.id)).unwrap().unwrap();
    assert_eq!(job.state, State::Interrupted, "a lease of before the copy goes on");
    let told = tell(&store, write(settle(held.id, held.epoch, succeeded())));
    assert_eq!(told.unwrap_err(), Refusal::StaleAttempt);
    let got = granted(&tell(&store, claim_many("w3", 3, 2)).unwrap());
    assert_eq!(got.len(), 2);
    for granted in got {
        let epoch = granted.job.epoch;
        assert!(epoch > held.epoch && epoch > lost.epoch, "{epoch:?} was granted before");
        assert_eq!(epoch.get() >> 32, 1, "a new incarnation");
    }
}

#[test]
fn a_dump_in_another_cluster_is_a_new_incarnation() {
    let other = Cluster::start(&postgres::Options { fsync: false, ..postgres::Options::default() });
    let home = SchemaHome::new();
    compare(&home, |dump| {
        restore(&other, dump);
        let config = other.connection_string("postgres").parse().unwrap();
        Options { config, ..home.options.clone() }
    });
}

#[test]
fn a_dump_that_is_restored_where_it_came_from_is_a_new_incarnation() {
    let home = SchemaHome::new();
    compare(&home, |dump| {
        home.sql().run(&format!("DROP SCHEMA {} CASCADE", home.options.schema));
        restore(Cluster::shared(), dump);
        home.options.clone()
    });
}
