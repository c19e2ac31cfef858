//! The client against the real server: the same engine and the same handlers, over HTTP, on SQLite and on PostgreSQL.
//!
//! Start with [`server`], which starts and kills it. [`work`] is what handlers and callers do on a good day, [`outages`]
//! on a bad one, [`access`] what a token opens, and [`https`] a server that is
//! who it says.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod access;
mod https;
mod outages;
mod server;
mod work;

/// Makes of each test two: one for each kind of store. A test is given a store that nobody else uses.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                crate::server::block_on(super::$test(crate::server::Store::sqlite()));
            })*
        }

        mod postgres {
            $(#[test]
            fn $test() {
                crate::server::block_on(super::$test(crate::server::Store::postgres()));
            })*
        }
    };
}
pub(crate) use on_both_stores;
