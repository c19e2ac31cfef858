//! Looks at a file from outside, while others may write.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use windlass_kernel::Timestamp;

use crate::{
    Error, migrate,
    sqlite::{
        SqlResult,
        file::{
            lock, mark,
            open::{beside, failed, read_identity, schema_version},
            place::BUSY_TIMEOUT,
        },
        row::session::read_sessions,
    },
    survey::{self, MigrationStep, Survey},
};

/// The steps of the schema of a file.
pub fn steps() -> Vec<MigrationStep> {
    survey::steps(migrate::SQLITE)
}

/// Looks at a file. Nothing in it is changed.
pub fn survey(path: &Path) -> Result<Survey, Error> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|it| failed(path, it))?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(|it| failed(path, it))?;
    let known = migrate::SQLITE.last().map_or(0, |step| step.number);
    let schema = schema_version(path, &connection)?;
    let size = |ending| fs::metadata(beside(path, ending)).map(|it| it.len()).ok();
    let mut survey = Survey {
        schema,
        known,
        is_too_new: schema > known,
        read_only: read_only(path),
        owner: lock::owner(path),
        size_bytes: size("").unwrap_or(0),
        journal_bytes: Some(size("-wal").unwrap_or(0)),
        ..Survey::default()
    };
    if survey.is_up_to_date() {
        look_inside(path, &connection, &mut survey).map_err(|it| failed(path, it))?;
    }
    Ok(survey)
}

const OBJECTS: &str = "
    SELECT type || ' ' || name FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%'";
const LAST_COMMIT: &str = "SELECT at FROM log ORDER BY id DESC LIMIT 1";
const LETTERS: &str = "SELECT count(*) FROM dlq_items WHERE state = 'open'";
const SET_ASIDE: &str = "SELECT count(*) FROM inbox_set_aside";

/// What a table that is missing would tell is left out: that it is missing is told.
fn look_inside(path: &Path, connection: &Connection, survey: &mut Survey) -> SqlResult<()> {
    let mut statement = connection.prepare(OBJECTS)?;
    let found = statement.query_map([], |row| row.get(0))?.collect::<SqlResult<Vec<String>>>()?;
    survey.missing = survey::missing(wanted(), &found);
    survey.foreign = foreign(connection)?;
    let has = |table: &str| found.contains(&format!("table {table}"));
    if has("log") {
        let at = connection.query_row(LAST_COMMIT, [], |row| row.get(0)).optional()?;
        survey.last_commit_at = at.map(Timestamp::from_micros);
        let stored = read_identity(connection)?;
        if let Err(lost) = mark::check(path, mark::read(path).as_ref(), stored.as_ref()) {
            survey.lost = Some(lost.to_string());
        }
    }
    if has("sessions") && has("jobs") {
        survey.sessions = read_sessions(connection)?;
    }
    if has("dlq_items") {
        survey.letters = connection.query_row(LETTERS, [], |row| row.get(0))?;
    }
    if has("inbox_set_aside") {
        survey.set_aside = connection.query_row(SET_ASIDE, [], |row| row.get(0))?;
    }
    Ok(())
}

const MADE: &str = "
    SELECT type, name, tbl_name FROM sqlite_schema
    WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite_%' AND type <> 'index' ORDER BY type, name";

/// What somebody else has put into the file: tables, views, and triggers on what is ours. Triggers on tables of the
/// user's own are the user's.
pub(crate) fn foreign(connection: &Connection) -> SqlResult<Vec<String>> {
    let ours: Vec<String> = wanted().collect();
    let mut statement = connection.prepare(MADE)?;
    let made = statement.query_map([], |row| {
        let (kind, name, on): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let is_ours = |kind: &str, name: &str| ours.contains(&format!("{kind} {name}"));
        let is_on_ours = is_ours("table", &on) || is_ours("view", &on);
        let is_told = !is_ours(&kind, &name) && (kind != "trigger" || is_on_ours);
        Ok(is_told.then(|| match kind.as_str() {
            "trigger" => format!("trigger {name} on {on}"),
            _ => format!("{kind} {name}"),
        }))
    })?;
    Ok(made.collect::<SqlResult<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The tables, indexes and views of the schema that is written down.
fn wanted() -> impl Iterator<Item = String> {
    let schema = include_str!("../../../schema/sqlite.sql");
    let object = |line: &str| {
        let rest = line.strip_prefix("CREATE ")?;
        let (kind, rest) = rest.trim_start_matches("UNIQUE ").split_once(' ')?;
        let name = rest.split([' ', '(']).next()?.trim_matches('"');
        let is_ours = !name.starts_with("sqlite_");
        is_ours.then(|| format!("{} {name}", kind.to_ascii_lowercase()))
    };
    schema.lines().filter_map(object)
}

/// Why the file cannot be written to. To write, SQLite also makes files beside it.
fn read_only(path: &Path) -> Option<String> {
    if let Err(why) = OpenOptions::new().write(true).open(path) {
        return Some(format!("{} cannot be written to: {why}", path.display()));
    }
    let beside = beside(path, "-lock");
    match OpenOptions::new().write(true).open(&beside) {
        Err(why) if why.kind() != std::io::ErrorKind::NotFound => {
            Some(format!("{} cannot be written to: {why}", beside.display()))
        }
        _ => None,
    }
}
