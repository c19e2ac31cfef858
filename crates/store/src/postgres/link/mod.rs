//! The link to the server: connections and their pool, what is sent, what comes back and what goes wrong on the way.

pub(super) mod composite;
pub(super) mod failure;
pub(super) mod open;
pub(super) mod partitions;
pub(super) mod pipeline;
pub(super) mod pool;
pub(super) mod presence;
pub(super) mod schema;
pub(super) mod server_time;
pub(super) mod thread;
pub(super) mod types;
pub(super) mod wake;
pub(super) mod way;
