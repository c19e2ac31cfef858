//! What the tests of Windlass share. It sees only the kernel, and only tests see it.

pub mod grid;
pub mod random;

mod map;

pub use map::MapStore;
