//! The client: an engine whose store is a Windlass server, spoken to over HTTP.
//!
//! `Engine::open("http://127.0.0.1:7117")` opens a [`Remote`], which is a store like the others: jobs are enqueued,
//! looked at and acted on, and workers run the same handlers, with the same context. What decides is on the server, and
//! so are timers, recovery and retention.
//!
//! Start with `remote`, the store; `commit` makes calls of writes; `wire` has the documents, and says what of a job
//! is not told; `problem` makes refusals and errors of problem documents; `link` is the line to the server, and
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
mod schedules;
mod wire;

pub use self::remote::Remote;
