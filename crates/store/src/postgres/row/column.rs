//! What a column holds: ids, times, words and JSON. A value that cannot be right means that the database is damaged.

use tokio_postgres::Row;
use windlass_kernel::{JobId, Refusal, State, Timestamp};

use crate::{
    job_row::Unreadable,
    postgres::{
        Failure, PgResult,
        link::types::{Time, Uuid},
    },
};

pub(crate) fn digest_of(row: &Row, column: usize) -> PgResult<[u8; 32]> {
    let bytes: &[u8] = row.try_get(column)?;
    bytes.try_into().map_err(|_| Failure::damaged("a digest is not 32 bytes"))
}

pub(crate) fn state_of(row: &Row, column: usize) -> PgResult<State> {
    let word: &str = row.try_get(column)?;
    State::parse(word).ok_or_else(|| Failure::damaged(format!("{word} is no state")))
}

pub(crate) fn id_of(row: &Row, column: usize) -> PgResult<JobId> {
    Ok(JobId::from_u128(row.try_get::<_, Uuid>(column)?.0))
}

pub(crate) fn time_of(row: &Row, column: usize) -> PgResult<Timestamp> {
    Ok(row.try_get::<_, Time>(column)?.0)
}

pub(crate) fn time_or_none(row: &Row, column: usize) -> PgResult<Option<Timestamp>> {
    Ok(row.try_get::<_, Option<Time>>(column)?.map(|time| time.0))
}

pub(crate) fn number(row: &Row, column: usize) -> PgResult<u64> {
    let number: i64 = row.try_get(column)?;
    u64::try_from(number).map_err(|_| Failure::damaged(format!("{number} is negative")))
}

pub(crate) fn number_32(row: &Row, column: usize) -> PgResult<u32> {
    let number: i32 = row.try_get(column)?;
    u32::try_from(number).map_err(|_| Failure::damaged(format!("{number} is negative")))
}

pub(crate) fn text_of<T: std::str::FromStr<Err = Refusal>>(
    row: &Row,
    column: usize,
) -> PgResult<T> {
    parse(row.try_get(column)?)
}

pub(crate) fn parse<T: std::str::FromStr<Err = Refusal>>(text: &str) -> PgResult<T> {
    text.parse().map_err(|why: Refusal| Failure::damaged(format!("{text:?}: {why}")))
}

pub(crate) fn json_of<T: serde::de::DeserializeOwned>(row: &Row, column: usize) -> PgResult<T> {
    let text: &str = row.try_get(column)?;
    serde_json::from_str(text).map_err(|error| Failure::damaged(error.to_string()))
}

pub(crate) fn damaged(Unreadable { column, why }: Unreadable) -> Failure {
    Failure::damaged(format!("{column}: {why}"))
}
