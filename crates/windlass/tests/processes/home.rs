//! A store on disk with a home of its own, for nodes and for the test that looks at what they left.

use std::{
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use windlass::{Config, Engine};
use windlass_store::{postgres, sqlite};
use windlass_testkit::postgres::Cluster;

use crate::outside::Outside;

/// Where a store is. Its folder, which also has what happened outside, goes when this does.
pub(crate) struct Home {
    pub(crate) url: String,
    folder: tempfile::TempDir,
}

impl Home {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("w.db").display());
        Self { url, folder }
    }

    pub(crate) fn postgres() -> Self {
        Self::on(Cluster::shared())
    }

    /// A schema of its own on this cluster.
    pub(crate) fn on(cluster: &Cluster) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let schema = format!("processes_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        let port = cluster.port();
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?schema={schema}");
        Self { url, folder: tempfile::tempdir().unwrap() }
    }

    /// Another store of the same sort.
    pub(crate) fn another(&self) -> Self {
        if self.is_sqlite() { Self::sqlite() } else { Self::postgres() }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.url.starts_with("sqlite:")
    }

    /// Its schema, on PostgreSQL.
    pub(crate) fn schema(&self) -> &str {
        self.url.split_once("schema=").unwrap().1
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn outside(&self) -> Outside {
        Outside::at(self.folder())
    }

    /// An engine that only asks and looks: timers and recovery are left to the nodes. On SQLite no node may run
    /// meanwhile.
    pub(crate) async fn open(&self) -> Engine {
        let config = Config { timers: None, retention: None, ..Config::default() };
        Engine::open_with(&self.url, &config).await.unwrap()
    }

    /// Reads the whole store, and fails if its history breaks a rule. No engine may be open here.
    pub(crate) async fn check(&self) {
        let report = match self.url.strip_prefix("sqlite:") {
            Some(path) => sqlite::check(Path::new(path)).unwrap(),
            None => postgres::check(&postgres::Options::parse(&self.url).unwrap()).await.unwrap(),
        };
        assert!(report.is_clean(), "{report}");
    }
}
