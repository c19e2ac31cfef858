//! Opens a store by its address.

use std::{path::PathBuf, sync::Arc};

#[cfg(feature = "postgres")]
use windlass_store::postgres;
use windlass_store::{
    Client, Commit, Store,
    sqlite::{MemoryOptions, Options, Sqlite},
    without_password,
};

use super::Config;
use crate::{Error, clock};

/// A store that is open, and what else is known of it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Client>,
    /// Where its writes go: the store, or what somebody put before it.
    pub(super) commit: Arc<dyn Commit>,
    /// The store itself, if it is open in this process.
    pub(super) own: Option<Arc<dyn Store>>,
    /// The same, if it is SQLite.
    pub(super) sqlite: Option<Arc<Sqlite>>,
    /// Its schema, if it is PostgreSQL.
    pub(super) schema: Option<String>,
    /// The same, if it is a server.
    #[cfg(feature = "client")]
    pub(super) remote: Option<Arc<crate::client::Remote>>,
}

impl Opened {
    /// A store of which nothing else is known.
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store: store.clone(),
            commit: store.clone(),
            own: Some(store),
            sqlite: None,
            schema: None,
            #[cfg(feature = "client")]
            remote: None,
        }
    }
}

pub(super) async fn open(url: &str, config: &Config) -> Result<Opened, Error> {
    match url.split_once(':') {
        Some(("sqlite", ":memory:")) => {
            let (clock, ticks) = (config.clock.clone(), clock::ticks_of(&config.clock));
            let options = MemoryOptions { clock, ticks, inline: false };
            Ok(of_sqlite(Sqlite::in_memory(options)?))
        }
        Some(("sqlite", path)) => open_file(url, path, config),
        Some(("postgres" | "postgresql", _)) => open_postgres(url, config).await,
        Some(("http" | "https", _)) => open_server(url, config).await,
        _ => Err(not_understood(
            url,
            "it begins with sqlite:, postgres:// or http://, such as sqlite:windlass.db",
        )),
    }
}

fn open_file(url: &str, path: &str, config: &Config) -> Result<Opened, Error> {
    // Both `sqlite:folder/file` and `sqlite:///folder/file` are usual.
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(not_understood(url, "the name of a file is missing"));
    }
    let (path, address) = (PathBuf::from(path), config.address.clone());
    let (clock, ticks) = (config.clock.clone(), clock::ticks_of(&config.clock));
    Ok(of_sqlite(Sqlite::open(Options { path, clock, ticks, address })?))
}

fn of_sqlite(sqlite: Sqlite) -> Opened {
    let sqlite = Arc::new(sqlite);
    Opened { sqlite: Some(sqlite.clone()), ..Opened::new(sqlite) }
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, _config: &Config) -> Result<Opened, Error> {
    let options = postgres::Options::parse(url)?;
    let schema = options.schema.clone();
    let store = Arc::new(postgres::Postgres::open(options).await?);
    Ok(Opened { schema: Some(schema), ..Opened::new(store) })
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(url: &str, _config: &Config) -> Result<Opened, Error> {
    Err(not_understood(url, "this program was built without PostgreSQL"))
}

#[cfg(feature = "client")]
async fn open_server(url: &str, config: &Config) -> Result<Opened, Error> {
    let token = config.token.clone().or_else(|| std::env::var("WINDLASS_TOKEN").ok());
    let opened = crate::client::Remote::open(url, token.as_deref(), config.clock.clone()).await;
    let remote = Arc::new(opened.map_err(|why| not_understood(url, &why))??);
    Ok(Opened {
        store: remote.clone(),
        commit: remote.clone(),
        own: None,
        sqlite: None,
        schema: None,
        remote: Some(remote),
    })
}

#[cfg(not(feature = "client"))]
async fn open_server(url: &str, _config: &Config) -> Result<Opened, Error> {
    let why = "this program was built without the client of a server: add the feature `client` to \
               windlass in Cargo.toml";
    Err(not_understood(url, why))
}

fn not_understood(url: &str, why: &str) -> Error {
    Error::Url { url: without_password(url), why: why.to_owned() }
}
