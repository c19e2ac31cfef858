//! Plants bugs: damages a copy of a healthy store, past every constraint, and asks the checker.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, LazyLock},
};

use rusqlite::{Connection, params};
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use windlass_kernel::{Digest, JobId, Timestamp};
use windlass_store::{
    Error, ReadJobs as _,
    check::{Invariant, Report},
    read::Scope,
    sqlite::{self, Options, Sqlite},
};

use crate::common::{FileHome, rich::Rich};

/// A healthy store with jobs in every state, made once.
static HEALTHY: LazyLock<Vec<u8>> = LazyLock::new(|| healthy(1_200));

/// The same with few jobs, for what is tried out many times.
static SMALL: LazyLock<Vec<u8>> = LazyLock::new(|| healthy(60));

fn healthy(steps: u64) -> Vec<u8> {
    let home = Arc::new(FileHome::new());
    let mut rich = Rich::new_in(home.clone());
    let mut seed = 3;
    rich.live(seed, steps, 8);
    while !rich.has_every_state() {
        seed += 1;
        rich.live(seed, 20, 8);
    }
    rich.use_inbox();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy.db");
    home.copy_to(&path);
    std::fs::read(path).unwrap()
}

/// A store that someone damages.
pub(crate) struct Planted {
    connection: Connection,
    path: PathBuf,
    _folder: TempDir,
}

/// One line of a job's history, and the log row it stands in; none for a commit of its own, at the end.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) log_id: Option<u64>,
    pub(crate) line: Vec<Value>,
}

impl Planted {
    pub(crate) fn new() -> Self {
        Self::of(&HEALTHY)
    }

    pub(crate) fn small() -> Self {
        Self::of(&SMALL)
    }

    fn of(healthy: &[u8]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("planted.db");
        std::fs::write(&path, healthy).unwrap();
        let connection = Connection::open(&path).unwrap();
        let careless = "PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON;
            PRAGMA synchronous = OFF; DROP INDEX jobs_key; DROP INDEX jobs_task";
        connection.execute_batch(careless).unwrap();
        Self { connection, path, _folder: folder }
    }

    /// Damages the store with plain SQL.
    pub(crate) fn plant(self, sql: &str) -> Self {
        let before = self.connection.total_changes();
        self.connection.execute_batch(sql).unwrap();
        assert!(self.connection.total_changes() > before, "nothing was damaged by {sql}");
        self
    }

    /// Every column of our tables that has a number: table and column.
    pub(crate) fn numbers(&self) -> Vec<(String, String)> {
        let sql = "
            SELECT tables.name, columns.name
            FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
            WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite%' AND columns.type = 'INTEGER'
            ORDER BY 1, 2";
        let mut statement = self.connection.prepare(sql).unwrap();
        let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        found.collect::<Result<_, _>>().unwrap()
    }

    /// What the checker says when a row of the table has this number. None, if the table is empty or takes no such number.
    pub(crate) fn try_value(
        self,
        table: &str,
        column: &str,
        value: i64,
    ) -> Option<Result<Report, Error>> {
        let one = format!("SELECT {column} FROM {table} LIMIT 1");
        let sql = format!("UPDATE OR IGNORE {table} SET {column} = ?1 WHERE {column} IS ({one})");
        let changed = self.connection.execute(&sql, [value]).ok()?;
        (changed > 0).then(|| sqlite::check(&self.path))
    }

    /// A text that a query finds.
    pub(crate) fn find(&self, sql: &str) -> String {
        self.connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// The first job of which this is true.
    pub(crate) fn victim(&self, is_true: &str) -> JobId {
        let sql = format!("SELECT id FROM jobs WHERE {is_true} ORDER BY seq LIMIT 1");
        let id: [u8; 16] = self.connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        JobId::from_u128(u128::from_be_bytes(id))
    }

    /// Tells a job's history otherwise, in good order: log, version, pointers and chain fit together.
    pub(crate) fn retell(self, job: JobId, change: impl FnOnce(&mut Vec<Told>)) -> Self {
        let name = job.to_string()[JobId::PREFIX.len()..].to_owned();
        let rows = self.rows_about(&name);
        let mut history = Vec::new();
        for (log_id, lines) in &rows {
            let mine = lines.iter().filter(|line| line.find(&name) == Some(2));
            history.extend(mine.map(|line| Told {
                log_id: Some(*log_id),
                line: serde_json::from_str(line).unwrap(),
            }));
        }
        change(&mut history);
        for (log_id, lines) in rows {
            let mut told = history.iter().filter(|told| told.log_id == Some(log_id));
            let lines: Vec<String> = lines
                .into_iter()
                .map(|line| match line.find(&name) {
                    Some(2) => serde_json::to_string(&told.next().unwrap().line).unwrap(),
                    _ => line,
                })
                .collect();
            let sql = "UPDATE log SET events = ?2 WHERE id = ?1";
            self.connection
                .execute(sql, params![log_id, format!("[{}]", lines.join(","))])
                .unwrap();
        }
        for told in history.iter_mut().filter(|told| told.log_id.is_none()) {
            told.log_id = Some(self.append(job, &serde_json::to_string(&told.line).unwrap()));
        }
        self.point_to(job, &history);
        self
    }

    fn rows_about(&self, name: &str) -> Vec<(u64, Vec<String>)> {
        let sql = "SELECT id, events FROM log WHERE instr(events, ?1) ORDER BY id";
        let mut statement = self.connection.prepare(sql).unwrap();
        let rows = statement.query_map([format!("[\"{name}\"")], |row| {
            let text: String = row.get(1)?;
            let lines: Vec<&RawValue> = serde_json::from_str(&text).unwrap();
            Ok((row.get(0)?, lines.into_iter().map(|line| line.get().to_owned()).collect()))
        });
        rows.unwrap().collect::<Result<_, _>>().unwrap()
    }

    /// Adds a commit of one line at the end of the log.
    pub(crate) fn append(&self, job: JobId, line: &str) -> u64 {
        let sql = "
            INSERT INTO log (id, tenant, at, count, events)
            SELECT max(id) + count, coalesce((SELECT tenant FROM jobs WHERE id = ?1), 'acme'), at, 1, ?2
            FROM log RETURNING id";
        let id = job.as_u128().to_be_bytes();
        let line = format!("[{line}]");
        self.connection.query_row(sql, params![id, line], |row| row.get(0)).unwrap()
    }

    fn point_to(&self, job: JobId, history: &[Told]) {
        let id = job.as_u128().to_be_bytes();
        let mut chain = [0; 32];
        let mut log_ids: Vec<u64> = Vec::new();
        for told in history {
            let log_id = told.log_id.unwrap();
            let sql = "SELECT at FROM log WHERE id = ?1";
            let at: i64 = self.connection.query_row(sql, [log_id], |row| row.get(0)).unwrap();
            let mut hash = Sha256::new();
            hash.update(chain);
            hash.update(at.to_be_bytes());
            hash.update(serde_json::to_string(&told.line).unwrap());
            chain = hash.finalize().into();
            log_ids.push(log_id);
        }
        log_ids.dedup();
        let mut places: Vec<u8> = chain.to_vec();
        places.extend(log_ids.into_iter().flat_map(u64::to_be_bytes));
        let older = "DELETE FROM job_log WHERE seq = (SELECT seq FROM jobs WHERE id = ?1)";
        self.connection.execute(older, [id]).unwrap();
        let sql = "UPDATE jobs SET history = ?2, version = ?3 WHERE id = ?1";
        self.connection.execute(sql, params![id, places, history.len()]).unwrap();
    }

    /// The digest of what the row of a job says was asked for.
    pub(crate) fn spec_digest(&self, job: JobId) -> Digest {
        let path = self.path.clone();
        let store = Sqlite::open(Options {
            path,
            address: None,
            clock: Arc::new(|| Timestamp::MIN),
            ticks: None,
        })
        .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let job = runtime.block_on(store.job(&Scope::Every, job)).unwrap().unwrap();
        windlass_store::spec_digest(&job.spec)
    }

    /// The checker names exactly these rules.
    pub(crate) fn check_names(self, rules: &[Invariant]) {
        let report = sqlite::check(&self.path).unwrap();
        let found: BTreeSet<Invariant> = report.violations.iter().map(|it| it.invariant).collect();
        assert_eq!(found, rules.iter().copied().collect(), "{report}");
    }
}
