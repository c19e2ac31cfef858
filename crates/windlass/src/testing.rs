//! For users' own tests: an engine in memory, under a clock that skips forward.
//!
//! In a test with tokio's paused clock nothing sleeps: whenever everything waits, time jumps to whatever comes
//! next. So retries, schedules and time-outs take no time, and the same test does the same thing each time.
//!
//! ```
//! use windlass::{Failure, HandlerResult, State, Work, job, testing};
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # struct Flaky;
//! # impl Work for Flaky { const KIND: &str = "flaky"; }
//!
//! // In a test: #[tokio::test(start_paused = true)]
//! # fn main() {
//! #     let mut runtime = tokio::runtime::Builder::new_current_thread();
//! #     let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime");
//! #     runtime.block_on(async { retries_take_no_time().await.expect("it passes") });
//! # }
//! async fn retries_take_no_time() -> HandlerResult {
//!     let engine = testing::engine()?;
//!     let always_fails = async |_: Flaky| -> HandlerResult { Err("no".into()) };
//!     let worker = engine.worker().handle(always_fails).start().await?;
//!     let job = engine.enqueue(Flaky).await?;
//!     let ended = engine.wait(job.id).await?;
//!     assert_eq!((ended.job.state, ended.job.attempt), (State::Failed, 4));
//!     worker.shutdown().await?;
//!     Ok(())
//! }
//! ```

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use windlass_kernel::Timestamp;
use windlass_store::sqlite::{MemoryOptions, Sqlite};

use crate::{Clock, Config, Engine, Error, ids::Random, timers};

/// The time at which a test begins.
pub const BEGINS_AT: &str = "2026-01-01T00:00:00Z";

/// An engine on a store of its own in memory, under the clock of the runtime.
///
/// Ids and the spread of retries come from a fixed seed, so that a test does the same each time.
pub fn engine() -> Result<Engine, Error> {
    let clock = clock();
    let store = store(clock.clone())?;
    Ok(Engine::on_sqlite(store, &config(clock, seeded(1))))
}

/// The same, for a test that skips over days or years, such as one of schedules: it looks after timers only when
/// something is known to ring, and not once a second. Such a year takes as long as what happens in it. A worker,
/// which says every few seconds that it lives, is better started only for the days that it is needed on. What nobody tells it is found late: it is no
/// engine for tests in which processes die.
pub fn patient_engine() -> Result<Engine, Error> {
    let clock = clock();
    let store = store(clock.clone())?;
    let look_every = Duration::from_secs(30 * 24 * 60 * 60);
    let timers = timers::Config { look_every, ..timers::Config::default() };
    Ok(Engine::on_sqlite(store, &Config { timers: Some(timers), ..config(clock, seeded(1)) }))
}

/// The usual set-up of an engine, with this clock and this chance.
pub fn config(clock: Clock, random: Random) -> Config {
    Config { clock, random, ..Config::default() }
}

/// A store in memory for any number of engines of one thread. Whoever asks it something waits without giving up
/// the thread, so what happens depends on nothing but the order of calls.
pub fn store(clock: Clock) -> Result<Arc<Sqlite>, Error> {
    Ok(Arc::new(Sqlite::in_memory(MemoryOptions { clock, ticks: None, inline: true })?))
}

/// The clock of the runtime, which begins at a fixed time. It moves as tokio's clock does: on its own, or, if that is
/// paused, when everything waits.
///
/// # Panics
/// Outside a runtime.
pub fn clock() -> Clock {
    let (began, runtime) = (Instant::now(), tokio::runtime::Handle::current());
    let begins_at: Timestamp = BEGINS_AT.parse().expect("it is a time");
    Arc::new(move || {
        // A thread of the store asks too, and would be told the time of the machine.
        let _inside = runtime.enter();
        begins_at.plus(began.elapsed())
    })
}

/// Chance that is the same each time, from a seed.
pub fn seeded(seed: u64) -> Random {
    let state = AtomicU64::new(seed);
    let next = move || {
        // SplitMix64: a counter whose values are scattered well.
        let counter = state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        let mut bits = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    };
    Arc::new(move || u128::from(next()) << 64 | u128::from(next()))
}
