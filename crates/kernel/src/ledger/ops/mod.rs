//! The ops on a ledger: what its worker records, what comes from outside, and what people state.

pub(crate) mod advance;
pub(crate) mod checkpoint;
pub(crate) mod effect;
pub(crate) mod resolve;
pub(crate) mod signal;
