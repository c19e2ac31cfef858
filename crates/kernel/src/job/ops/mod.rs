//! The ops on a job, one file each: the op, its footprint and its rule.

pub(crate) mod bury;
pub(crate) mod cancel;
pub(crate) mod claim;
pub(crate) mod enqueue;
pub(crate) mod expire;
pub(crate) mod promote;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod rerun;
pub(crate) mod retry_now;
pub(crate) mod settle;
pub(crate) mod start;
pub(crate) mod wait;
pub(crate) mod wake;
