//! Middleware: what runs around every handler of a worker.

use std::{future::Future, sync::Arc};

use windlass_kernel::Failure;

use super::{BoxFuture, context::Context, handler::AnyHandler, outcome::Outcome};

/// Runs around each execution: before it, after it, or instead of it.
///
/// An async function of a [`Context`] and the [`Next`] is one:
///
/// ```
/// use windlass::{Context, Failure, Next, Outcome};
///
/// async fn log(context: Context, next: Next) -> Result<Outcome, Failure> {
///     let ended = next.run(context.clone()).await;
///     eprintln!("{} {}", context.job_id(), if ended.is_ok() { "done" } else { "failed" });
///     ended
/// }
/// ```
pub trait Middleware: Send + Sync + 'static {
    /// Runs around `next`.
    fn around(&self, context: Context, next: Next) -> BoxFuture<Result<Outcome, Failure>>;
}

impl<F, R> Middleware for F
where
    F: Fn(Context, Next) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    fn around(&self, context: Context, next: Next) -> BoxFuture<Result<Outcome, Failure>> {
        Box::pin(self(context, next))
    }
}

/// What a middleware runs around: those after it, and in the end the handler.
#[derive(Clone)]
pub struct Next {
    layers: Arc<[Arc<dyn Middleware>]>,
    /// The layer that is next.
    at: usize,
    handler: AnyHandler,
    payload: Arc<str>,
}

impl Next {
    pub(super) fn new(
        layers: Arc<[Arc<dyn Middleware>]>,
        handler: AnyHandler,
        payload: Arc<str>,
    ) -> Self {
        Self { layers, at: 0, handler, payload }
    }

    /// Goes on.
    pub fn run(mut self, context: Context) -> BoxFuture<Result<Outcome, Failure>> {
        match self.layers.get(self.at).cloned() {
            Some(layer) => {
                self.at += 1;
                layer.around(context, self)
            }
            None => (self.handler)(&self.payload, context),
        }
    }

    /// The payload, as JSON.
    pub fn payload(&self) -> &str {
        &self.payload
    }
}
