//! SQLite: a home is a file in a folder. Here is also what only its own tests need.

use std::{
    fs,
    ops::{Deref, DerefMut},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicI64},
};

use rusqlite::Connection;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use windlass_kernel::{FollowUp, Refusal, TenantId, Timestamp, ops::Enqueue};
use windlass_store::{
    Error, Store, Ticks,
    check::{self, Report},
    sqlite::{self, Clock, EnqueueInError, Options, Sqlite, enqueue_in},
};

use super::{Home, TestStore, User, store::clock};

/// A file, in a folder of its own unless somebody else has made it.
pub struct FileHome {
    pub path: PathBuf,
    _folder: Option<TempDir>,
}

impl FileHome {
    pub fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    /// In memory, if this machine has a place for files there.
    pub fn new_in_memory() -> Self {
        Self::within(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), _folder: None }
    }

    fn within(folder: TempDir) -> Self {
        // The store knows its file by a path without links, and so does a test that compares them.
        let path = folder.path().canonicalize().unwrap().join("windlass.db");
        Self { path, _folder: Some(folder) }
    }

    /// A connection like that of a shell.
    pub fn sql(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }

    /// A copy of the file, whole, for someone to damage.
    pub fn copy_to(&self, path: &Path) {
        self.sql().execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    }
}

impl Home for FileHome {
    fn address(&self) -> String {
        self.path.to_str().unwrap().to_owned()
    }

    fn open_with_ticks(
        &self,
        clock: Clock,
        ticks: Option<Ticks>,
        _: &Runtime,
    ) -> Result<Arc<dyn Store>, Error> {
        let options = Options { path: self.path.clone(), clock, ticks, address: None };
        Ok(Arc::new(Sqlite::open(options)?))
    }

    fn check(&self) -> Report {
        sqlite::check(&self.path).unwrap()
    }

    fn user(&self) -> Box<dyn User> {
        Box::new(self.sql())
    }

    fn count(&self, table: &str) -> u64 {
        count(&self.sql(), table)
    }

    fn side_tables(&self) -> &'static [&'static str] {
        SIDE_TABLES
    }

    fn next_attempts(&self, tenant: &TenantId) -> Vec<u32> {
        next_attempts(&self.sql(), tenant)
    }

    fn follow_ups(&self) -> Vec<FollowUp> {
        follow_ups(&self.sql())
    }
}

pub(super) const SIDE_TABLES: &[&str] = &[
    "payloads", "outputs", "progress", "job_log", "job_tags", "steps", "signals", "effects",
    "pruned",
];

pub(super) fn count(connection: &Connection, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    connection.query_row(&sql, [], |row| row.get(0)).unwrap()
}

pub(super) fn next_attempts(connection: &Connection, tenant: &TenantId) -> Vec<u32> {
    let sql = "SELECT next_attempt FROM tasks WHERE tenant = ?1 ORDER BY next_attempt";
    let mut statement = connection.prepare(sql).unwrap();
    let rows = statement.query_map([tenant.as_str()], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

pub(super) fn follow_ups(connection: &Connection) -> Vec<FollowUp> {
    let mut statement = connection.prepare("SELECT what FROM follow_ups ORDER BY id").unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    rows.map(|text| serde_json::from_str(&text.unwrap()).unwrap()).collect()
}

impl User for Connection {
    fn begin(&mut self) {
        self.sql("BEGIN IMMEDIATE");
    }

    fn sql(&mut self, sql: &str) {
        self.execute_batch(sql).unwrap();
    }

    fn put(&mut self, op: &Enqueue, at: Timestamp) -> Result<(), Refusal> {
        match enqueue_in(self, op, at) {
            Ok(()) => Ok(()),
            Err(EnqueueInError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{error}"),
        }
    }

    fn changes(&mut self) -> u64 {
        self.total_changes()
    }
}

/// A [`TestStore`] whose file the test knows.
pub struct FileStore {
    test: TestStore,
    pub path: PathBuf,
}

impl FileStore {
    /// A new store in a folder of its own.
    pub fn new() -> Self {
        Self::open_home(FileHome::new()).unwrap()
    }

    /// The store of this file.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_home(FileHome::at(path))
    }

    fn open_home(home: FileHome) -> Result<Self, Error> {
        let path = home.path.clone();
        Ok(Self { test: TestStore::open(Arc::new(home))?, path })
    }

    /// The incarnation, as it is stored.
    pub fn store_incarnation(&self) -> u64 {
        let sql = "SELECT coalesce(max(value), 0) FROM meta WHERE name = 'incarnation'";
        self.sql().query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// A connection like that of a shell.
    pub fn sql(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

impl Deref for FileStore {
    type Target = TestStore;

    fn deref(&self) -> &TestStore {
        &self.test
    }
}

impl DerefMut for FileStore {
    fn deref_mut(&mut self) -> &mut TestStore {
        &mut self.test
    }
}

/// Opens a file with this clock.
pub fn open(path: &Path, now: &Arc<AtomicI64>, address: Option<&str>) -> Result<Sqlite, Error> {
    Sqlite::open(Options {
        path: path.to_owned(),
        clock: clock(now),
        ticks: None,
        address: address.map(str::to_owned),
    })
}

/// Opens a file and expects to be refused. It gives back the error, and all it says.
pub fn refused(path: &Path) -> (Error, String) {
    let error = match FileStore::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error,
    };
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        said = format!("{said}: {next}");
        cause = next.source();
    }
    (error, said)
}

/// Copies a database with all that stands beside it, as a machine that dies leaves it.
pub fn copy_all(from: &Path, to: &Path) {
    for ending in ["", "-wal", "-mark"] {
        let name = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        if name(from).exists() {
            fs::copy(name(from), name(to)).unwrap();
        }
    }
}
