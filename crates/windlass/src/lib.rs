//! Windlass: background jobs that are not lost, not done twice, and can be explained.
//!
//! A program opens an [`Engine`], gives a worker its handlers, and enqueues:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use windlass::{Engine, HandlerResult, Work};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Greet {
//!     name: String,
//! }
//!
//! impl Work for Greet {
//!     const KIND: &str = "greet";
//! }
//!
//! async fn greet(job: Greet) -> HandlerResult<String> {
//!     Ok(format!("Hello, {}!", job.name))
//! }
//!
//! # fn main() -> Result<(), windlass::Error> {
//! #     tokio::runtime::Runtime::new().expect("a runtime").block_on(example())
//! # }
//! # async fn example() -> Result<(), windlass::Error> {
//! let engine = Engine::open("sqlite::memory:").await?;
//! let worker = engine.worker().handle(greet).start().await?;
//! let job = engine.enqueue(Greet { name: "Ann".to_owned() }).await?;
//! let greeting: String = engine.wait(job.id).await?.result()?;
//! assert_eq!(greeting, "Hello, Ann!");
//! worker.shutdown().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Where to start: [`engine`] is the way in; [`worker`] runs handlers; [`timers`] do what time brings, and recover
//! what a dead process held; [`rules`] say who may run, and [`why`] tells why a job does not; [`schedules`] make jobs
//! at their times; [`committer`] is the road that every write takes to the store. [`clock`] and [`ids`]
//! bring in time and chance, so that a test can set both. With the feature `client`, an engine can be on a server that is
//! spoken to over HTTP: only the address differs.
//!
//! Always true here: the engine decides nothing about a job. It sends ops, and the kernel decides.

#[cfg(feature = "client")]
pub mod client;
pub mod clock;
pub mod committer;
mod condition;
pub mod durable;
pub mod engine;
mod enqueue_in;
mod error;
#[cfg(any(debug_assertions, feature = "faults"))]
pub mod faults;
pub mod ids;
mod request;
pub mod rules;
pub mod schedules;
pub mod shutdown;
mod span;
mod tally;
pub mod testing;
pub mod timers;
mod touched;
mod trace;
pub mod why;
pub mod wire;
pub mod worker;

pub use clock::Clock;
pub use committer::{Committer, Handle, SubmitError};
pub use condition::Health;
pub use engine::{Config, Ended, Engine, Enqueued, Progress};
pub use enqueue_in::enqueue_in;
#[cfg(feature = "postgres")]
pub use enqueue_in::enqueue_in_postgres;
pub use error::Error;
pub use ids::Ids;
pub use request::{JobRequest, Work, job};
pub use rules::rule;
pub use schedules::{CatchUp, Overlap};
pub use span::{Span, SpanOf, Tracer};
pub use tally::Tallied;
pub use trace::TraceContext;
pub use why::Why;
pub use windlass_kernel::{
    Class, DlqId, Epoch, Failure, JobId, Refusal, RetryPolicy, Schedule, State, Timestamp,
    rule::{Breaker, Each},
};
#[cfg(feature = "postgres")]
pub use windlass_store::postgres::tokio_postgres;
pub use windlass_store::{read::Scope, rusqlite, sqlite::EnqueueInError};
pub use worker::{
    BoxError, BoxFuture, Context, Fence, Handler, HandlerResult, IntoOutcome, Middleware, Next,
    Outcome, Report, Stop, Worker, WorkerBuilder,
};
