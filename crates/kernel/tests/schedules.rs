//! Schedules: which slots they have, and what becomes of each.

#[path = "schedules/clocks.rs"]
mod clocks;
#[path = "schedules/common.rs"]
mod common;
#[path = "schedules/firing.rs"]
mod firing;
#[path = "schedules/late.rs"]
mod late;
#[path = "schedules/put.rs"]
mod put;
