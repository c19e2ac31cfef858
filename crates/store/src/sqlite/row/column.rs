//! What a column holds: ids, times, words and JSON. A value that cannot be right means that the database is damaged.

use std::str::FromStr;

use rusqlite::Row;
use windlass_kernel::{State, Timestamp};

use crate::{job_row::Unreadable, sqlite::SqlResult};

/// A column that cannot be what it should be: the database is damaged.
pub(crate) fn of_row(Unreadable { column, why }: Unreadable) -> rusqlite::Error {
    unreadable(0, format!("{column}: {why}"))
}

pub(crate) fn u128_of(row: &Row<'_>, column: usize) -> SqlResult<u128> {
    row.get::<_, [u8; 16]>(column).map(u128::from_be_bytes)
}

pub(crate) fn id_or_none(row: &Row<'_>, column: usize) -> SqlResult<Option<u128>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(u128::from_be_bytes))
}

pub(crate) fn time_of(row: &Row<'_>, column: usize) -> SqlResult<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

pub(crate) fn time_or_none(row: &Row<'_>, column: usize) -> SqlResult<Option<Timestamp>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_micros))
}

pub(crate) fn state_of(row: &Row<'_>, column: usize) -> SqlResult<State> {
    let word = row.get_ref(column)?.as_str()?;
    State::parse(word).ok_or_else(|| unreadable(column, format!("{word} is no state")))
}

pub(crate) fn text_of<T>(row: &Row<'_>, column: usize) -> SqlResult<T>
where
    T: FromStr<Err = windlass_kernel::Refusal>,
{
    let text = row.get_ref(column)?.as_str()?;
    text.parse().map_err(|why: windlass_kernel::Refusal| unreadable(column, why.to_string()))
}

pub(crate) fn json_of<T: serde::de::DeserializeOwned>(
    row: &Row<'_>,
    column: usize,
) -> SqlResult<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| unreadable(column, error.to_string()))
}

/// A value that cannot be what it should be: the database is damaged.
pub(crate) fn unreadable(column: usize, why: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into())
}
