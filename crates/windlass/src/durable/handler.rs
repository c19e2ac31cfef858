//! Durable handlers: async functions that take a [`Ctx`] and a payload.

use std::{future::Future, sync::Arc};

use serde::de::DeserializeOwned;
use windlass_kernel::{Failure, failure::PAYLOAD_UNFIT};

use super::{Ctx, StepError, run};
use crate::worker::{AnyHandler, BoxError, BoxFuture, IntoOutcome, Outcome, failure_of, unfit};

/// An async function that runs durable jobs of one kind: `async fn(&Ctx, Payload) -> Result<T, E>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a durable handler",
    label = "not a durable handler",
    note = "a durable handler is `async fn(ctx: &Ctx, payload: Payload) -> Result<T, E>`: `T` can be written as JSON, `E` is any \
            error that is `Send + Sync + 'static`, and its future is `Send`"
)]
pub trait DurableHandler<'c, P>: Send + Sync + 'static {
    /// Runs it.
    fn call(&self, ctx: &'c Ctx, payload: P) -> BoxFutureOf<'c>;
}

/// A future that lives as long as the context.
pub type BoxFutureOf<'c> =
    std::pin::Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send + 'c>>;

impl<'c, P, F, R, T, E> DurableHandler<'c, P> for F
where
    F: Fn(&'c Ctx, P) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, E>> + Send + 'c,
    T: IntoOutcome,
    E: Into<BoxError>,
    P: Send + 'c,
{
    fn call(&self, ctx: &'c Ctx, payload: P) -> BoxFutureOf<'c> {
        let running = self(ctx, payload);
        Box::pin(async move {
            match running.await {
                Ok(value) => Ok(value.into_outcome()),
                Err(error) => ended(error.into()),
            }
        })
    }
}

/// A handler that gives back a cancel is cancelled; any other error is a failure.
fn ended(error: BoxError) -> Result<Outcome, Failure> {
    match error.downcast_ref::<StepError>() {
        Some(StepError::Cancelled) => Ok(Outcome::cancelled(None)),
        _ => Err(failure_of(error)),
    }
}

/// Forgets the types of a handler.
pub(crate) fn erase<P, H>(handler: H) -> AnyHandler
where
    P: DeserializeOwned + Send + 'static,
    H: for<'c> DurableHandler<'c, P>,
{
    let handler = Arc::new(handler);
    Arc::new(move |payload, context| match serde_json::from_str::<P>(payload) {
        Ok(payload) => {
            let handler = handler.clone();
            let start = move |ctx: Ctx| -> BoxFuture<Result<Outcome, Failure>> {
                Box::pin(async move { handler.call(&ctx, payload).await })
            };
            Box::pin(run(context, start))
        }
        Err(error) => {
            let why = unfit(payload, &error);
            let message = format!("the payload is not what the handler takes: {why}");
            let failure = Failure::own(PAYLOAD_UNFIT, &message);
            Box::pin(async move { Err(failure) })
        }
    })
}
