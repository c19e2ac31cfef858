//! The write path: each commit is one transaction (`transaction`), tried until its outcome is known (`writer`).

pub(super) mod at_once;
pub(super) mod decide;
pub(super) mod first_load;
pub(super) mod load;
pub(super) mod log_rows;
pub(super) mod save;
pub(super) mod transaction;
pub(super) mod work;
pub(super) mod writer;
