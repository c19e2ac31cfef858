//! Copies of a store: what the original has granted since is never granted again under the same epoch.

use std::{error::Error as _, io::Write as _, process::Stdio, thread::sleep, time::Duration};

use windlass_kernel::{Refusal, State};
use windlass_store::{
    Commit as _, ReadJobs as _,
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
    restore_and(cluster, dump, &[], || ());
}

/// Restores a dump, and stops in between to do something else.
fn restore_and(cluster: &Cluster, first: &[u8], rest: &[u8], between: impl FnOnce()) {
    let mut command = cluster.client("psql");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d"]);
    command.arg(cluster.connection_string("postgres"));
    let mut psql = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut stdin = psql.stdin.take().unwrap();
    stdin.write_all(first).unwrap();
    stdin.flush().unwrap();
    between();
    stdin.write_all(rest).unwrap();
    drop(stdin);
    assert!(psql.wait().unwrap().success(), "the dump cannot be restored");
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

/// The node is told to stop before a restore. One that goes on does no harm: it writes nothing into tables that are half
/// restored, and nothing into those that take the place of its own.
#[test]
fn a_dump_that_is_restored_under_a_running_node_is_a_new_incarnation() {
    let mut home = SchemaHome::new();
    let name = home.options.schema.clone();
    home.options.config.application_name(&name);
    let runtime = runtime(2);
    let tell = |store: &Postgres, write| runtime.block_on(store.commit(vec![write].into()));
    let store = node(&runtime, &home.options);
    tell(&store, write(enqueue(1, plain()))).unwrap()[0].as_ref().unwrap();
    let claimed = tell(&store, claim_many("w1", 1, 1)).unwrap();
    let held = granted(claimed[0].as_ref().unwrap()).remove(0).job;
    tell(&store, write(enqueue(2, plain()))).unwrap()[0].as_ref().unwrap();
    let dump = String::from_utf8(dump(Cluster::shared(), &home)).unwrap();
    let claimed = tell(&store, claim_many("w2", 2, 1)).unwrap();
    let lost = granted(claimed[0].as_ref().unwrap()).remove(0).job;
    let shell = home.sql();
    shell.run(&format!("DROP SCHEMA {name} CASCADE"));
    // The table is there, and what belongs into it is not.
    let (first, rest) = dump.split_at(dump.find(&format!("COPY {name}.meta")).unwrap());
    let meta = format!("SELECT to_regclass('{name}.meta') IS NOT NULL");
    let kill = "
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = $1 AND pid <> pg_backend_pid()";
    restore_and(Cluster::shared(), first.as_bytes(), rest.as_bytes(), || {
        while !Cluster::shared().psql(&meta).starts_with('t') {
            sleep(Duration::from_millis(10));
        }
        // It has to connect again, and meets a store that is not whole.
        Cluster::shared().psql(&kill.replace("$1", &format!("'{name}'")));
        let mut said = String::new();
        for _ in 0..100 {
            let error = tell(&store, write(enqueue(3, plain()))).unwrap_err();
            said =
                format!("{error}: {}", error.source().map(ToString::to_string).unwrap_or_default());
            if said.contains("a dump is being restored here") {
                break;
            }
            sleep(Duration::from_millis(20));
        }
        assert!(said.contains("a dump is being restored here"), "{said}");
    });
    let sql = "SELECT count(*) = count(DISTINCT name), count(*) FILTER (WHERE name = 'store_id') = 1 FROM meta";
    let whole = home.sql().query(sql, &[]);
    assert!(whole[0].get::<_, bool>(0) && whole[0].get::<_, bool>(1), "meta is whole");
    // It does not go on, whatever it is asked for, and says what to do.
    for ask in [write(enqueue(3, plain())), claim_many("w3", 3, 2)] {
        let error = tell(&store, ask).unwrap_err();
        assert_eq!(error.code(), "STORE_STOPPED");
        assert!(error.to_string().contains("start this process again"), "{error}");
    }
    let again = node(&runtime, &home.options);
    for old in [&held, &lost] {
        let told = tell(&again, write(settle(old.id, old.epoch, succeeded()))).unwrap().remove(0);
        assert_eq!(told.unwrap_err(), Refusal::StaleAttempt);
    }
    let claimed = tell(&again, claim_many("w4", 4, 2)).unwrap();
    let got = granted(claimed[0].as_ref().unwrap());
    assert_eq!(got.len(), 2);
    for granted in got {
        let epoch = granted.job.epoch;
        assert!(epoch > held.epoch && epoch > lost.epoch, "{epoch:?} was granted before");
    }
    assert_eq!(home.count("jobs"), 2, "the node that ran on made no job");
    let report = home.check();
    assert!(report.is_clean(), "{report}");
}
