//! Opens a database: the lock, then a look at what is there, then its set-up.
//!
//! Nothing is written to the database before all that can be refused was refused: a file that is newer,
//! damaged or somebody else's stays as it was, with its write-ahead log.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{
    Connection, ErrorCode, MAIN_DB, OpenFlags, OptionalExtension as _, TransactionBehavior,
    config::DbConfig,
};

use super::{
    identity::FileIdentity,
    lock::Lock,
    mark::{self, Mark, Noted, Point},
    place::{BUSY_TIMEOUT, Place},
    private,
};
use crate::{
    Error, migrate,
    sqlite::{
        SqlResult, classify,
        read::{causes, feed::FEED_END},
        write::saver::Files,
    },
};

/// Earlier ones can corrupt a database when two connections meet at the end of its log.
const LIBRARY_MIN: i32 = 3_051_003;

/// A database that is ours, up to date and set up.
pub(crate) struct Opened {
    pub(crate) place: Place,
    /// The connection that writes.
    pub(crate) connection: Connection,
    /// Nobody else can open what is in memory.
    pub(crate) lock: Option<Lock>,
    pub(crate) files: Option<Files>,
}

/// Opens the file, which is made if it is not there.
pub(crate) fn open(path: &Path, address: Option<&str>) -> Result<Opened, Error> {
    check_library(path, rusqlite::version_number())?;
    let path = real_path(path)?;
    let mut lock = Lock::take(&path, address)?;
    let noted = mark::read(&path);
    let mut connection = connect(&path)?;
    lock.hold(&path)?;
    let version = look(&path, &connection, noted.as_ref())?;
    let place = Place::File(path.clone());
    set_up(&place, &connection)?;
    migrate(&path, &mut connection, version)?;
    let stored = settle_identity(&connection, noted.as_ref()).map_err(classify)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
        .map_err(classify)?;
    let files = Files { identity: FileIdentity::new(&path), mark: Mark::new(&path, stored) };
    Ok(Opened { place, connection, lock: Some(lock), files: Some(files) })
}

/// Makes a new database in memory.
pub(crate) fn open_in_memory() -> Result<Opened, Error> {
    let place = Place::new_in_memory();
    let mut connection = place.connect()?;
    set_up(&place, &connection)?;
    migrate(place.path(), &mut connection, 0)?;
    settle_identity(&connection, None).map_err(classify)?;
    Ok(Opened { place, connection, lock: None, files: None })
}

/// The path of a file that stands beside the database.
pub(crate) fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn check_library(path: &Path, version: i32) -> Result<(), Error> {
    if version < LIBRARY_MIN {
        let (major, minor, patch) = (version / 1_000_000, version / 1000 % 1000, version % 1000);
        let why = format!(
            "SQLite {major}.{minor}.{patch} is linked, and 3.51.3 is the oldest that is safe"
        );
        return Err(Error::open(path, why));
    }
    Ok(())
}

/// The path without links, so that one file has one lock whatever it is called.
pub(crate) fn real_path(path: &Path) -> Result<PathBuf, Error> {
    let failed = |why: &str| Error::open(path, why);
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(failed("it is a folder")),
        Ok(found) if !found.is_file() => Err(failed("it is not a plain file")),
        Ok(_) => fs::canonicalize(path).map_err(|error| Error::open(path, error)),
        Err(_) if fs::symlink_metadata(path).is_ok() => {
            Err(failed("it is a link that leads nowhere"))
        }
        Err(_) => {
            let name = path.file_name().ok_or_else(|| failed("it has no file name"))?;
            let folder = match path.parent() {
                Some(folder) if !folder.as_os_str().is_empty() => folder,
                _ => Path::new("."),
            };
            let unusable = |error| failed(&format!("the folder {}: {error}", folder.display()));
            fs::canonicalize(folder).map(|folder| folder.join(name)).map_err(unusable)
        }
    }
}

fn connect(path: &Path) -> Result<Connection, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    private::create(path).map_err(|error| Error::open(path, error))?;
    let connection = Connection::open_with_flags(path, flags).map_err(|it| failed(path, it))?;
    let prepare = || -> SqlResult<bool> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // Closing after a refusal must not tidy up what someone may want to look at.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.is_readonly(MAIN_DB)
    };
    // SQLite falls back to reading where it may not write.
    if prepare().map_err(|error| failed(path, error))? {
        return Err(Error::open(path, "it cannot be written to"));
    }
    Ok(connection)
}

const HAS_HISTORY: &str =
    "SELECT count(*) > 0 FROM pragma_table_info('jobs') WHERE name = 'history'";
const HAS_META: &str = "SELECT count(*) FROM sqlite_schema WHERE name = 'meta'";
const STORE_ID: &str = "SELECT value FROM meta WHERE name = 'store_id'";
pub(crate) const INCARNATION: &str = "SELECT value FROM meta WHERE name = 'incarnation'";

/// Refuses what is not ours, newer, or has lost something. It gives back the schema's version.
fn look(path: &Path, connection: &Connection, noted: Option<&Noted>) -> Result<u32, Error> {
    let version = schema_version(path, connection)?;
    migrate::missing(migrate::SQLITE, version)?;
    let read = |error| failed(path, error);
    if version > 0 && !connection.query_row(HAS_HISTORY, [], |row| row.get(0)).map_err(read)? {
        let why = "it has a layout from before the first release, which is no longer read. Begin with a new file";
        return Err(Error::open(path, why));
    }
    let stored = if version > 0 { read_identity(connection).map_err(read)? } else { None };
    mark::check(path, noted, stored.as_ref())?;
    Ok(version)
}

/// The newest migration in the database; 0 if it is empty. The database of another program is refused.
pub(crate) fn schema_version(path: &Path, connection: &Connection) -> Result<u32, Error> {
    let read = |error| failed(path, error);
    let version = connection.pragma_query_value(None, "user_version", |row| row.get(0));
    let version: u32 = version.map_err(read)?;
    let has_meta: bool = connection.query_row(HAS_META, [], |row| row.get(0)).map_err(read)?;
    if version > 0 && !has_meta {
        return Err(Error::open(path, "it is the database of another program"));
    }
    Ok(version)
}

/// Which store it is and how far it came. A database that was never opened to the end has no id.
pub(crate) fn read_identity(connection: &Connection) -> SqlResult<Option<Noted>> {
    let store: Option<String> = connection.query_row(STORE_ID, [], |row| row.get(0)).optional()?;
    let event: Option<u64> = connection.query_row(FEED_END, [], |row| row.get(0)).optional()?;
    let incarnation = connection.query_row(INCARNATION, [], |row| row.get(0)).optional()?;
    let (event, incarnation) = (event.unwrap_or(0), incarnation.unwrap_or(0));
    Ok(store.map(|store| Noted { store, point: Point { incarnation, event } }))
}

fn set_up(place: &Place, connection: &Connection) -> Result<(), Error> {
    set(place, connection).map_err(|error| failed(place.path(), error))?;
    check_settings(place, connection)
}

fn set(place: &Place, connection: &Connection) -> SqlResult<()> {
    for (name, value) in place.settings() {
        connection.pragma_update(None, name, value)?;
    }
    // Where a plain fsync leaves the data in the drive's cache. It means nothing elsewhere.
    connection.pragma_update(None, "fullfsync", true)?;
    // 16 MiB. What is worked on is far smaller, and SQLite goes through the whole cache at a commit that
    // has split a page.
    connection.pragma_update(None, "cache_size", -16 * 1024)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    // The saver and the checkpointer copy the log: SQLite says nothing when its own attempt fails.
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(())
}

/// Reads back what durability rests on: a setting that SQLite did not take must not go unnoticed.
fn check_settings(place: &Place, connection: &Connection) -> Result<(), Error> {
    let path = place.path();
    for (name, wanted) in place.settings() {
        let read = connection.pragma_query_value(None, name, |row| {
            Ok(match row.get_ref(0)? {
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                text => text.as_str()?.to_owned(),
            })
        });
        let found = read.map_err(|error| failed(path, error))?;
        if found != wanted {
            return Err(Error::open(path, format!("{name} is {found}, and must be {wanted}")));
        }
    }
    Ok(())
}

fn migrate(path: &Path, connection: &mut Connection, version: u32) -> Result<(), Error> {
    let mut run = |migration: &migrate::Migration| -> SqlResult<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(migration.sql)?;
        transaction.pragma_update(None, "user_version", migration.number)?;
        transaction.commit()
    };
    for migration in migrate::missing(migrate::SQLITE, version)? {
        run(migration).map_err(|error| failed(path, error))?;
    }
    causes::make(connection).map_err(|error| failed(path, error))
}

const SET_STORE_ID: &str = "
    INSERT INTO meta (name, value) VALUES ('store_id', lower(hex(randomblob(16))))
    ON CONFLICT DO NOTHING";
pub(crate) const SET_INCARNATION: &str = "
    INSERT INTO meta (name, value) VALUES ('incarnation', ?1)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// Gives a new store its id, and says which store it is and how far it came.
///
/// A store with a history but without its mark was copied, restored or moved, or a loss was accepted:
/// it begins a new incarnation, so that it grants no epoch that some worker may already hold.
fn settle_identity(connection: &Connection, noted: Option<&Noted>) -> SqlResult<Noted> {
    connection.execute(SET_STORE_ID, [])?;
    let mut stored = read_identity(connection)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let is_marked = noted.is_some_and(|noted| noted.store == stored.store);
    if stored.point.event > 0 && !is_marked {
        stored.point.incarnation += 1;
        connection.execute(SET_INCARNATION, [stored.point.incarnation])?;
    }
    Ok(stored)
}

/// What an error means while a file is being opened.
pub(crate) fn failed(path: &Path, error: rusqlite::Error) -> Error {
    if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) {
        return Error::open(path, "it is not a database");
    }
    match classify(error) {
        Error::Damaged(why) => Error::Damaged(format!("{}: {why}", path.display())),
        Error::DiskFull(source) => Error::DiskFull(source),
        Error::Unavailable(source) => Error::open(path, source),
        other => Error::open(path, other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_corrupts_is_refused() {
        let path = Path::new("w.db");
        for (version, is_fine) in [(3_040_001, false), (3_051_002, false), (3_051_003, true)] {
            assert_eq!(check_library(path, version).is_ok(), is_fine, "{version}");
        }
        let Err(Error::Open { source, .. }) = check_library(path, 3_051_002) else {
            panic!("3.51.2 was not refused")
        };
        assert!(source.to_string().starts_with("SQLite 3.51.2 is linked"), "{source}");
    }

    #[test]
    fn less_than_full_safety_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.db");
        let connection = connect(&path).unwrap();
        let place = Place::File(path);
        set_up(&place, &connection).unwrap();
        for (setting, unsafe_value, safe_value) in [
            ("synchronous", "normal", "full"),
            ("foreign_keys", "off", "on"),
            ("journal_mode", "delete", "wal"),
        ] {
            connection.pragma_update(None, setting, unsafe_value).unwrap();
            let refused = check_settings(&place, &connection);
            assert!(matches!(refused, Err(Error::Open { .. })), "{setting} was let through");
            connection.pragma_update(None, setting, safe_value).unwrap();
            check_settings(&place, &connection).unwrap();
        }
    }

    #[test]
    fn memory_has_settings_of_its_own() {
        let place = Place::new_in_memory();
        let connection = place.connect().unwrap();
        set_up(&place, &connection).unwrap();
        let of_a_file = check_settings(&Place::File("w.db".into()), &connection);
        assert!(matches!(of_a_file, Err(Error::Open { .. })));
        // SQLite has nothing else to offer there: what is in memory cannot get a log by mistake.
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        check_settings(&place, &connection).unwrap();
    }
}
