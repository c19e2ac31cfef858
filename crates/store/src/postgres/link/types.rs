//! Values on their way to PostgreSQL and back: ids as `uuid`, instants as `timestamptz`, and the transaction
//! that wrote a row.

use bytes::{BufMut as _, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};
use windlass_kernel::Timestamp;

type BoxError = Box<dyn std::error::Error + Sync + Send>;

/// An id of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Uuid(pub(crate) u128);

impl ToSql for Uuid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    accepts!(UUID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Uuid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    accepts!(UUID);
}

/// The transaction that wrote a row, as the row's `xmin` tells it. A row that has the same one is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Xid(pub(crate) u32);

impl ToSql for Xid {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_u32(self.0);
        Ok(IsNull::No)
    }

    accepts!(XID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Xid {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }

    accepts!(XID);
}

/// An instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Timestamp);

/// PostgreSQL counts microseconds from the beginning of the year 2000.
const MICROS_BEFORE_2000: i64 = 946_684_800_000_000;

impl ToSql for Time {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, BoxError> {
        out.put_i64(self.0.as_micros() - MICROS_BEFORE_2000);
        Ok(IsNull::No)
    }

    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Time {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, BoxError> {
        let micros = i64::from_be_bytes(raw.try_into()?).saturating_add(MICROS_BEFORE_2000);
        Ok(Self(Timestamp::from_micros(micros)))
    }

    accepts!(TIMESTAMPTZ);
}

/// A number that is never negative, which PostgreSQL has no type for.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A count or a small number.
pub(crate) fn signed_32(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
