//! The server: Windlass over HTTP, for every language.
//!
//! [`routes`] is the table of all that can be called: a path that is not in it does not exist, and the documents
//! at `/openapi.json` and `/docs` are written from it. A call takes one way (`core::route`): who is it, may they, is the
//! request within its bounds; then the handler (`api`, a file each resource), which reads the store or sends ops.
//!
//! Always true here: the tenant comes from who calls and never from what is sent; nothing decides about a job.

mod api;
mod core;
mod openapi;
mod routes;

pub(crate) use self::{
    api::{
        alerts::{Alert, Thresholds},
        bulk::{KIND as OPERATION_KIND, QUEUE as OPERATION_QUEUE, carry_out},
        feed::tell,
    },
    core::{
        app::{App, Settings},
        caller::Caller,
        listen::{InProcess, serve},
        problem::CODES as PROBLEM_CODES,
        tls::{Files as TlsFiles, Tls},
    },
};
