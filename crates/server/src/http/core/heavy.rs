//! Calls that compute for long: those whose bodies are large, and those that go through thousands of rows.
//!
//! A thread that answers does one thing at a time, and whoever waits for it waits for all of that. So what such calls do
//! between two waits is done while another thread takes over the rest.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use windlass::BoxFuture;

/// Bodies from this size on take long to read.
const BODY_BYTES: usize = 16 * 1024;

/// What answers with lists, or counts what is there.
const PATHS: &[&str] = &[
    "/api/v1/jobs",
    "/api/v1/jobs/{id}/events",
    "/api/v1/jobs/{id}/attempts",
    "/api/v1/dlq",
    "/api/v1/dlq/groups",
    "/api/v1/events",
    "/api/v1/operations",
    "/api/v1/overview",
    "/api/v1/queues",
    "/api/v1/queues/{name}",
    "/api/v1/rules",
    "/api/v1/schedules",
    "/api/v1/schedules/{name}/history",
    "/api/v1/tokens",
    "/api/v1/audit",
    "/api/v1/workers",
    "/metrics",
];

/// Does a call of this route, with a body of this size, compute for long?
pub(crate) fn is_heavy(method: &str, path: &str, body_bytes: usize) -> bool {
    body_bytes >= BODY_BYTES || is_long_read(method, path)
}

/// Does it answer with a list, or count what is there?
pub(crate) fn is_long_read(method: &str, path: &str) -> bool {
    method == "GET" && PATHS.contains(&path)
}

/// A call that lets another thread take over while it computes.
pub(crate) struct Heavy<T>(pub(crate) BoxFuture<T>);

impl<T> Future for Heavy<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
        match flavor {
            Ok(RuntimeFlavor::MultiThread) => block_in_place(|| self.0.as_mut().poll(context)),
            // A command that calls the routes within its own process has one thread, and waits for nothing else.
            _ => self.0.as_mut().poll(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::routes::ROUTES;

    #[test]
    fn every_path_is_one_of_a_route() {
        for path in PATHS {
            let is_route = ROUTES.iter().any(|route| route.method == "GET" && route.path == *path);
            assert!(is_route, "{path}");
        }
    }

    #[test]
    fn it_gives_back_what_it_computed_on_any_runtime() {
        let heavy = || Heavy(Box::pin(async { 7 }));
        let one = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(one.block_on(heavy()), 7);
        let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        assert_eq!(many.block_on(async { tokio::spawn(heavy()).await.unwrap() }), 7);
    }
}
