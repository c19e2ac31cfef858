//! The server: Windlass over HTTP, for every language.
//!
//! [`routes`] is the table of all that can be called: a path that is not in it does not exist, and the documents
//! at `/openapi.json` and `/docs` are written from it. A call takes one way ([`route`]): who is it, may they, is the
//! request within its bounds; then the handler, which reads the store or sends ops.
//!
//! Always true here: the tenant comes from who calls and never from what is sent; nothing decides about a job.

mod alerts;
mod app;
mod attempts;
mod audit;
mod bells;
mod body;
mod budget;
mod bulk;
mod caller;
mod claims;
mod clock;
mod contract;
mod counts;
mod demo;
mod document;
mod feed;
mod figures;
mod heavy;
mod internal;
mod jobs;
mod late_queues;
mod leases;
mod letters;
mod limits;
mod lines;
mod listen;
mod listening;
mod openapi;
mod operations;
mod overview;
mod pace;
mod pages;
mod places;
mod problem;
mod pulse;
mod query;
mod queues;
mod rates;
mod ready;
mod room;
mod route;
mod routes;
mod rule_body;
mod runs;
mod schedules;
mod span;
mod streams;
mod tail;
mod tasks;
mod tls;
mod tokens;
mod totals;
mod under_way;
mod verify;
mod why;
mod worded;

pub(crate) use self::{
    alerts::{Alert, Thresholds},
    app::{App, Settings},
    bulk::{KIND as OPERATION_KIND, QUEUE as OPERATION_QUEUE, carry_out},
    caller::Caller,
    feed::tell,
    listen::{InProcess, serve},
    problem::CODES as PROBLEM_CODES,
    tls::{Files as TlsFiles, Tls},
};
