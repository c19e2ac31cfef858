//! What only PostgreSQL has: enqueues from SQL, TLS, servers that are refused, sessions that prove their death.
#![expect(clippy::disallowed_methods, reason = "a test that waits for a real store has an end")]
#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod at_once;
mod children;
#[path = "../common/mod.rs"]
mod common;
mod constraints;
mod elsewhere;
mod inbox;
mod nodes;
mod open;
mod presence;
mod rules;
mod schema;
mod sql_function;
mod tls;
