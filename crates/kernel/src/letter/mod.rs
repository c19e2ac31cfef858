//! Dead letters: what is left of a job that failed, and what people do about it.

pub(crate) mod ops;
mod row;

pub use self::row::*;
