//! What the tests of Windlass share. It sees only the kernel, and only tests see it.

pub mod docs;
pub mod grid;
mod map;
pub mod random;

pub use map::MapStore;
