//! What carries every call: the listener, the one way from the socket to a handler, who calls and within which bounds.
//!
//! Start with `route`, the way of a call, and `app`, what all calls share. Nothing here is about one resource.

pub(crate) mod app;
pub(crate) mod bells;
pub(crate) mod body;
pub(crate) mod budget;
pub(crate) mod caller;
pub(crate) mod contract;
pub(crate) mod counts;
pub(crate) mod figures;
pub(crate) mod heavy;
pub(crate) mod limits;
pub(crate) mod lines;
pub(crate) mod listen;
pub(crate) mod listening;
pub(crate) mod pace;
pub(crate) mod pages;
pub(crate) mod places;
pub(crate) mod problem;
pub(crate) mod pulse;
pub(crate) mod query;
pub(crate) mod rates;
pub(crate) mod room;
pub(crate) mod route;
pub(crate) mod span;
pub(crate) mod streams;
pub(crate) mod tail;
pub(crate) mod tls;
pub(crate) mod totals;
pub(crate) mod under_way;
pub(crate) mod worded;
