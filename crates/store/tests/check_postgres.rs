//! The checker finds each planted bug by its name on PostgreSQL too. The rules are the same as on SQLite, where all
//! of them are tried out; what is tried here is that each kind of damage reaches them, and what only
//! PostgreSQL has: a feed that gives the log its order.

#![expect(clippy::unwrap_used, reason = "in a test, what fails should fail here")]

mod common;
#[path = "check_postgres/feed_bugs.rs"]
mod feed_bugs;
#[path = "check_postgres/number_bugs.rs"]
mod number_bugs;
#[path = "check_postgres/plant.rs"]
mod plant;
#[path = "check_postgres/row_bugs.rs"]
mod row_bugs;
