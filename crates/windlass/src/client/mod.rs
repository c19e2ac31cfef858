//! The client: an engine whose store is a Windlass server, spoken to over HTTP.
//!
//! `Engine::open("http://127.0.0.1:7117")` opens a [`Remote`]: jobs are enqueued, looked at and acted on as on a store, and
//! workers run the same handlers, with the same context. What decides is on the server, and so are timers, recovery and
//! retention: a [`Remote`] has no methods for them.
//!
//! Start with `remote`; `commit` makes calls of writes, of the documents of [`crate::wire`]; `problem` makes refusals and
//! errors of problem documents; `link` is the line to the server, and
//! `bell` hears when there is something to claim.
//!
//! Always true here: what has an identity keeps it. A call whose answer is lost is ambiguous, and is sent again under
//! the ids that it had. Payloads pass byte for byte.

mod alone;
mod bell;
mod commit;
mod link;
mod problem;
mod remote;

pub use self::remote::Remote;
