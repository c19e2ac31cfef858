//! The server as programs see it: the real binary, over real sockets, on SQLite and on PostgreSQL.
//!
//! Start with [`server`], which starts and stops it, and [`snapshot`], which writes down whole answers.

#![cfg(unix)]

mod access;
mod alerts;
mod bad;
mod bounds;
mod bulk;
mod client;
mod contracts;
mod ends;
mod feed;
mod holders;
mod jobs;
#[path = "../../src/cli/look/json.rs"]
mod json;
mod kill;
mod ledger;
mod letters;
mod many_queues;
#[cfg(target_os = "linux")]
mod memory;
mod operations;
mod overload;
mod own_names;
mod presence;
mod queues;
mod schedules;
mod security;
mod server;
mod snapshot;
mod tokens;
mod unknown;
mod verify;
mod words;
mod worker_example;
mod workers;

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
