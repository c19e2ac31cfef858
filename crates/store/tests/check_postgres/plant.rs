//! Plants bugs: damages a copy of a healthy store that has lost its constraints, and asks the checker.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};
use windlass_kernel::JobId;
use windlass_store::{
    Error,
    check::{Invariant, Report},
    postgres::{self, tokio_postgres::Row},
};
use windlass_testkit::postgres::Cluster;

use crate::common::{
    User as _,
    postgres::{SchemaHome, Shell},
    rich::Rich,
};

/// The database of a healthy store with jobs in every state, made once, without its constraints.
static HEALTHY: LazyLock<&str> = LazyLock::new(|| healthy("healthy", 1_200));

/// The same with few jobs, for what is tried out many times.
static SMALL: LazyLock<&str> = LazyLock::new(|| healthy("small", 60));

fn healthy(name: &'static str, steps: u64) -> &'static str {
    shell("postgres").run(&format!("CREATE DATABASE {name}"));
    let home = Arc::new(home(name));
    let mut rich = Rich::new_in(home.clone());
    let mut seed = 3;
    rich.live(seed, steps, 8);
    while !rich.has_every_state() {
        seed += 1;
        rich.live(seed, 20, 8);
    }
    rich.use_inbox();
    drop(rich);
    home.sql().run(CARELESS);
    shell("postgres").run(&format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    ));
    name
}

const CARELESS: &str = "
    DO $$
    DECLARE
        it record;
    BEGIN
        FOR it IN SELECT conrelid::regclass AS place, conname FROM pg_constraint
            WHERE connamespace = 'windlass'::regnamespace AND contype IN ('c', 'f', 'p', 'u')
                AND conparentid = 0 AND coninhcount = 0
        LOOP
            EXECUTE format('ALTER TABLE %s DROP CONSTRAINT IF EXISTS %I CASCADE', it.place, it.conname);
        END LOOP;
        DROP INDEX jobs_key, jobs_task, jobs_leased, feed_seq;
    END $$";

fn home(database: &str) -> SchemaHome {
    SchemaHome::at(&format!("{}|windlass", Cluster::shared().connection_string(database)))
}

fn shell(database: &str) -> Shell {
    home(database).sql()
}

/// A store that someone damages.
pub(crate) struct Planted {
    home: SchemaHome,
    shell: Shell,
}

impl Planted {
    pub(crate) fn new() -> Self {
        Self::of(&HEALTHY)
    }

    pub(crate) fn small() -> Self {
        Self::of(&SMALL)
    }

    fn of(healthy: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("planted_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        shell("postgres").run(&format!("CREATE DATABASE {name} TEMPLATE {healthy}"));
        let shell = shell(&name);
        // Nothing here has to outlive a crash.
        shell.run("SET synchronous_commit = off");
        Self { home: home(&name), shell }
    }

    /// Damages the store with plain SQL.
    pub(crate) fn plant(mut self, sql: &str) -> Self {
        self.shell.run("BEGIN");
        let before = self.shell.changes();
        self.shell.run(sql);
        assert!(self.shell.changes() > before, "nothing was damaged by {sql}");
        self.shell.run("COMMIT");
        self
    }

    pub(crate) fn query(&self, sql: &str) -> Vec<Row> {
        self.shell.query(sql, &[])
    }

    /// What the checker says while a row of the table has this value, which it loses again. None, if the table is empty or
    /// takes no such value.
    pub(crate) fn try_value(
        &self,
        table: &str,
        column: &str,
        value: &str,
    ) -> Option<Result<Report, Error>> {
        let is = |value: &str, row: &str| {
            let sql = format!(
                "UPDATE {table} SET {column} = {value} WHERE (tableoid, ctid) IN ({row})
                 RETURNING format('VALUES (%L::oid, %L::tid)', tableoid, ctid)"
            );
            let changed = self.shell.runtime.block_on(self.shell.client.query(&sql, &[]));
            Some(changed.ok()?.first()?.get::<_, String>(0))
        };
        let first = format!("SELECT tableoid, ctid FROM {table} LIMIT 1");
        let before = self.query(&format!("SELECT quote_nullable({column}) FROM {table} LIMIT 1"));
        let before: String = before.first()?.get(0);
        let row = is(value, &first)?;
        let report = self.check();
        is(&before, &row).expect("it had that value before");
        Some(report)
    }

    /// The first job of which this is true.
    pub(crate) fn victim(&self, is_true: &str) -> JobId {
        let sql = format!("SELECT id::text FROM jobs WHERE {is_true} ORDER BY id LIMIT 1");
        let id = self.shell.query(&sql, &[])[0].get::<_, String>(0).replace('-', "");
        JobId::from_u128(u128::from_str_radix(&id, 16).unwrap())
    }

    /// Tells each line of a job's history otherwise, in good order: its chain fits.
    pub(crate) fn retell(self, job: JobId, change: impl Fn(&mut Vec<Value>)) -> Self {
        let name = job.to_string()[JobId::PREFIX.len()..].to_owned();
        let sql = "
            SELECT seq, (extract(epoch FROM log.at) * 1000000)::bigint, events
            FROM feed JOIN log USING (seq) WHERE strpos(events, $1) > 0 ORDER BY first";
        let mut chain = [0; 32];
        for row in self.shell.query(sql, &[&format!("[\"{name}\"")]) {
            let (at, events): (i64, &str) = (row.get(1), row.get(2));
            let lines: Vec<&RawValue> = serde_json::from_str(events).unwrap();
            let mut told = Vec::new();
            for line in lines.into_iter().map(RawValue::get) {
                if line.find(&name) != Some(2) {
                    told.push(line.to_owned());
                    continue;
                }
                let mut line: Vec<Value> = serde_json::from_str(line).unwrap();
                change(&mut line);
                told.push(serde_json::to_string(&line).unwrap());
                let mut hash = Sha256::new();
                hash.update(chain);
                hash.update(at.to_be_bytes());
                hash.update(told.last().unwrap());
                chain = hash.finalize().into();
            }
            let sql = "UPDATE log SET events = $2 WHERE seq = $1";
            let seq: i64 = row.get(0);
            self.shell.query(sql, &[&seq, &format!("[{}]", told.join(","))]);
        }
        let sql = format!(
            "UPDATE jobs SET history = $1::bytea || substr(history, 33) WHERE id = '{}'",
            uuid(job)
        );
        self.shell.query(&sql, &[&chain.as_slice()]);
        self
    }

    pub(crate) fn check(&self) -> Result<Report, Error> {
        self.shell.runtime.block_on(postgres::check(&self.home.options))
    }

    /// The checker names exactly these rules.
    pub(crate) fn check_names(self, rules: &[Invariant]) {
        let report = self.check().unwrap();
        let found: BTreeSet<Invariant> = report.violations.iter().map(|it| it.invariant).collect();
        assert_eq!(found, rules.iter().copied().collect(), "{report}");
    }
}

/// An id as SQL has it.
pub(crate) fn uuid(job: JobId) -> String {
    format!("{:032x}", job.as_u128())
}

/// Damages the healthy store, and expects that these rules are named.
pub(crate) fn plant(sql: &str, rules: &[Invariant]) {
    Planted::new().plant(sql).check_names(rules);
}
