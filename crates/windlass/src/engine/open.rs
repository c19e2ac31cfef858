//! Opens a store by its address.

use std::{path::PathBuf, sync::Arc};

#[cfg(feature = "postgres")]
use windlass_store::postgres;
use windlass_store::{
    Store,
    sqlite::{MemoryOptions, Options, Sqlite},
};

use super::Config;
use crate::Error;

/// A store that is open, and what else is known of it.
pub(super) struct Opened {
    pub(super) store: Arc<dyn Store>,
    /// The same, if it is SQLite.
    pub(super) sqlite: Option<Arc<Sqlite>>,
    /// Its schema, if it is PostgreSQL.
    pub(super) schema: Option<String>,
}

pub(super) async fn open(url: &str, config: &Config) -> Result<Opened, Error> {
    match url.split_once(':') {
        Some(("sqlite", ":memory:")) => {
            let options = MemoryOptions { clock: config.clock.clone(), inline: false };
            Ok(of_sqlite(Sqlite::in_memory(options)?))
        }
        Some(("sqlite", path)) => open_file(url, path, config),
        Some(("postgres" | "postgresql", _)) => open_postgres(url, config).await,
        _ => Err(not_understood(
            url,
            "it begins with sqlite: or postgres://, such as sqlite:windlass.db",
        )),
    }
}

fn open_file(url: &str, path: &str, config: &Config) -> Result<Opened, Error> {
    // Both `sqlite:folder/file` and `sqlite:///folder/file` are usual.
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(not_understood(url, "the name of a file is missing"));
    }
    let (path, clock, address) =
        (PathBuf::from(path), config.clock.clone(), config.address.clone());
    Ok(of_sqlite(Sqlite::open(Options { path, clock, address })?))
}

fn of_sqlite(sqlite: Sqlite) -> Opened {
    let sqlite = Arc::new(sqlite);
    Opened { store: sqlite.clone(), sqlite: Some(sqlite), schema: None }
}

#[cfg(feature = "postgres")]
async fn open_postgres(url: &str, _config: &Config) -> Result<Opened, Error> {
    let options = postgres::Options::parse(url)?;
    let schema = options.schema.clone();
    let store = Arc::new(postgres::Postgres::open(options).await?);
    Ok(Opened { store, sqlite: None, schema: Some(schema) })
}

#[cfg(not(feature = "postgres"))]
async fn open_postgres(url: &str, _config: &Config) -> Result<Opened, Error> {
    Err(not_understood(url, "this program was built without PostgreSQL"))
}

fn not_understood(url: &str, why: &str) -> Error {
    // An address may have a password in it: what stands before the @ is not shown.
    let url = match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => {
            format!("{}…{}", &url[..scheme + 3], &url[at..])
        }
        _ => url.to_owned(),
    };
    Error::Url { url, why: why.to_owned() }
}
