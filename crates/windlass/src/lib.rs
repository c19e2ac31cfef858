//! The engine of Windlass: what runs around the store.
//!
//! Where to start: [`committer`] is the road that every write takes to the store; [`enqueue_in`] is its
//! entrance for users who enqueue in their own transaction. [`clock`] and [`ids`] bring in time and chance,
//! so that a test can set both.
//!
//! Always true here: the engine decides nothing about a job. It sends ops, and the kernel decides.

pub mod clock;
pub mod committer;
mod enqueue_in;
pub mod ids;

pub use clock::Clock;
pub use committer::{Committer, Handle, SubmitError};
pub use enqueue_in::enqueue_in;
#[cfg(feature = "postgres")]
pub use enqueue_in::enqueue_in_postgres;
pub use ids::Ids;
#[cfg(feature = "postgres")]
pub use windlass_store::postgres::tokio_postgres;
pub use windlass_store::{rusqlite, sqlite::EnqueueInError};
