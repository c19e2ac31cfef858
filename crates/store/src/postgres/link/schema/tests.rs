//! Steps of a later version: one that expands is served by the older program, one that contracts is not.

use std::{error::Error as _, sync::Arc};

use tokio::runtime::Runtime;
use tokio_postgres::{Client, NoTls};
use windlass_testkit::postgres::Cluster;

use super::*;
use crate::{Commit as _, ReadQueues as _, migrate::POSTGRES, postgres::Postgres, read::Scope};

/// The newest step of this program.
const OURS: u32 = POSTGRES[POSTGRES.len() - 1].number;
/// Adds what an older program can do without.
const EXPANDS: Migration = Migration {
    number: OURS + 1,
    served_from: OURS,
    sql: "ALTER TABLE jobs ADD COLUMN later text",
};
/// Takes away what an older program reads.
const CONTRACTS: Migration = Migration {
    number: OURS + 2,
    served_from: OURS + 1,
    sql: "ALTER TABLE jobs DROP COLUMN payload CASCADE",
};

/// A store of its own, and programs of several versions for it.
struct Versions {
    options: Options,
    runtime: Runtime,
}

impl Versions {
    fn new(schema: &str) -> Self {
        let mut options =
            Options::new(Cluster::shared().connection_string("postgres").parse().unwrap());
        schema.clone_into(&mut options.schema);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        Self { options, runtime }
    }

    /// The program as it is.
    fn open(&self) -> Result<Postgres, Error> {
        self.runtime.block_on(Postgres::open(self.options.clone()))
    }

    /// A program that knows these steps too brings the schema up to date.
    fn upgrade(&self, later: &[Migration]) -> Result<(), Error> {
        let copy = |it: &Migration| Migration { ..*it };
        let all: Vec<Migration> = POSTGRES.iter().chain(later).map(copy).collect();
        let greeting = format!("SET search_path = {}", self.options.schema);
        let connector = Connector::new(&self.options, greeting)?;
        self.runtime.block_on(bring_up_to_date(&self.options, &connector, &all)).map(drop)
    }

    fn sql(&self, sql: &str) -> String {
        self.runtime.block_on(async {
            let (client, connection): (Client, _) =
                self.options.config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            let schema = &self.options.schema;
            client.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
            client.query_one(sql, &[]).await.unwrap().get(0)
        })
    }

    fn number(&self) -> u32 {
        self.sql("SELECT value FROM meta WHERE name = 'schema'").parse().unwrap()
    }
}

fn cause(error: &Error) -> String {
    error.source().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_schema_that_was_only_expanded_is_served_by_an_older_program() {
    let versions = Versions::new("expanded");
    let running = versions.open().unwrap();
    versions.upgrade(&[EXPANDS]).expect("whoever runs can go on, so nobody has to stop");
    assert_eq!(versions.number(), EXPANDS.number);
    let started = versions.open().expect("it can serve");
    for (jobs, store) in (1..).zip([&running, &started]) {
        versions.sql("SELECT enqueue('mail')");
        // A commit of nothing makes the job of what waits, unless the other node is just about to.
        let count = || {
            versions.runtime.block_on(store.commit(Arc::default())).unwrap();
            let counts = versions.runtime.block_on(store.counts(&Scope::Every)).unwrap();
            counts.iter().map(|it| it.2).sum::<u64>()
        };
        let seen = (0..1_000).any(|_| count() == jobs);
        assert!(seen, "there are {} jobs, not {jobs}", count());
    }
    assert_eq!(versions.number(), EXPANDS.number, "the older program leaves it as it is");
    versions.upgrade(&[EXPANDS]).expect("it has nothing to do");
}

#[test]
fn a_schema_that_was_contracted_is_refused_by_an_older_program() {
    let versions = Versions::new("contracted");
    drop(versions.open().unwrap());
    versions.upgrade(&[EXPANDS, CONTRACTS]).unwrap();
    let told = versions.open().err().expect("it cannot serve");
    assert!(told.to_string().contains("start the version that made it"), "{told}");
    let Error::Newer { found, known } = told else { panic!("{told:?}") };
    assert_eq!((found, known), (CONTRACTS.number, OURS));
    // The version between the two still can.
    versions.upgrade(&[EXPANDS]).unwrap();
    assert_eq!(versions.number(), CONTRACTS.number);
}

#[test]
fn a_step_that_contracts_waits_until_older_nodes_have_stopped() {
    let versions = Versions::new("contracting");
    let running = versions.open().unwrap();
    let listens = "
        SELECT count(*)::text FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objid = 'meta'::regclass::oid";
    while versions.sql(listens) == "0" {
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = versions.upgrade(&[EXPANDS, CONTRACTS]).expect_err("somebody still needs it");
    assert!(cause(&told).contains("stop them"), "{told}: {}", cause(&told));
    assert_eq!(versions.number(), OURS, "nothing was done, not even what expands");
    drop(running);
    // The server notices a moment later that the node is gone.
    while versions.sql(listens) != "0" {
        std::thread::sleep(Duration::from_millis(5));
    }
    versions.upgrade(&[EXPANDS, CONTRACTS]).unwrap();
    assert_eq!(versions.number(), CONTRACTS.number);
}
