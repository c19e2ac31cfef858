//! What the tests of the store share: a store whose clock they set, short ways to say ops, and
//! processes of their own.
//!
//! Tests that hold for every database take a [`Backend`] and open a [`TestStore`]. Tests of SQLite's files and
//! SQL open a [`FileStore`].
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "each test file uses its part of this"
)]
#![expect(clippy::unwrap_used, reason = "a test that fails here says enough")]

mod backend;
mod child;
mod memory;
mod ops;
pub mod postgres;
pub mod rich;
mod sqlite;
mod store;

pub use windlass_store::read::Scope;

pub use self::{backend::*, child::*, memory::*, ops::*, sqlite::*, store::*};
