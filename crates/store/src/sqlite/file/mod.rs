//! The database file: how it is opened, locked, watched, copied, and connected to.

pub(super) mod backup;
pub(super) mod copy;
pub(super) mod identity;
pub(super) mod inbox_watch;
pub(super) mod lock;
pub(super) mod mark;
pub(super) mod memory;
pub(super) mod now;
pub(super) mod open;
pub(super) mod place;
pub(super) mod presence;
pub(super) mod private;
pub(super) mod readers;
pub(super) mod restore;
pub(super) mod wait;
