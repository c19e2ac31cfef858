//! What the tests of Windlass share. It sees only the kernel, and only tests see it.

pub mod docs;
mod map;

pub use map::MapStore;
