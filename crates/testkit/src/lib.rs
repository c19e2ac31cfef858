//! What the tests of Windlass share. It sees only the kernel, and only tests see it.
//!
//! Where to start: a [`story`] says in a few lines what must happen to a job; a [`World`] is anything
//! that can live through one. [`MapStore`] is the smallest world: the kernel with nothing under it. Where a
//! test needs a PostgreSQL server, [`postgres`] starts one for it; where processes have to lose sight of it,
//! [`network`] puts each behind a line that can be cut. What callers were refused is held against the history by [`refusals`].

pub mod docs;
pub mod grid;
mod map;
pub mod network;
pub mod postgres;
pub mod random;
pub mod refusals;
pub mod story;
pub mod wall_clock;
mod world;

pub use map::MapStore;
pub use world::World;
