//! How a database file is read for the history checker.

#[cfg(feature = "postgres")]
mod copy;
mod rows;
mod snapshot;

#[cfg(feature = "postgres")]
pub(crate) use self::copy::CheckCopy;
pub use self::snapshot::check;
