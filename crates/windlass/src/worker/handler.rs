//! Handlers: plain async functions that take a payload.

use std::{future::Future, sync::Arc};

use serde::de::DeserializeOwned;
use windlass_kernel::{Failure, failure::PAYLOAD_UNFIT};

use super::{
    BoxFuture,
    context::Context,
    outcome::{BoxError, IntoOutcome, Outcome, failure_of},
    unfit::unfit,
};

/// An async function that runs jobs of one kind.
///
/// It takes the payload; if it wants to, also the [`Context`] of its execution, and after it what the worker's
/// handlers share. It returns a value that can be written as JSON, or an [`Outcome`]; and any error.
///
/// ```
/// # use std::sync::Arc;
/// # use windlass::{Context, HandlerResult, Outcome};
/// # struct SendMail;
/// # struct Smtp;
/// async fn simple(mail: SendMail) -> HandlerResult {
///     Ok(())
/// }
///
/// async fn with_context(mail: SendMail, context: Context) -> HandlerResult<Outcome> {
///     Ok(Outcome::done(&"sent"))
/// }
///
/// async fn with_state(mail: SendMail, context: Context, smtp: Arc<Smtp>) -> HandlerResult<u32> {
///     Ok(1)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of this worker",
    label = "not a handler",
    note = "a handler is `async fn(payload)`, `async fn(payload, Context)` or `async fn(payload, Context, Arc<State>)`, with \
            its arguments in this order",
    note = "a handler that takes `Arc<State>` needs `.state(…)` on the worker before `.handle(…)`",
    note = "it returns `Result<T, E>`: `T` can be written as JSON, `E` is any error that is `Send + Sync + 'static`",
    note = "its payload implements `serde::Deserialize`, and its future is `Send`: hold no `Rc`, `RefCell` or \
            `std::sync::MutexGuard` across an `.await`"
)]
pub trait Handler<S, A>: Send + Sync + 'static {
    /// What it takes.
    type Payload: DeserializeOwned + Send + 'static;

    /// Runs it.
    fn call(
        &self,
        payload: Self::Payload,
        context: Context,
        state: &Arc<S>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send + 'static;
}

macro_rules! handler {
    ($($args:ty),+; ($payload:ident, $context:ident, $state:ident) => $($given:expr),+) => {
        impl<S, F, R, P, T, E> Handler<S, ($($args,)+)> for F
        where
            S: Send + Sync + 'static,
            F: Fn($($args),+) -> R + Send + Sync + 'static,
            R: Future<Output = Result<T, E>> + Send + 'static,
            P: DeserializeOwned + Send + 'static,
            T: IntoOutcome,
            E: Into<BoxError>,
        {
            type Payload = P;

            fn call(
                &self,
                $payload: P,
                $context: Context,
                $state: &Arc<S>,
            ) -> impl Future<Output = Result<Outcome, Failure>> + Send + 'static {
                let running = self($($given),+);
                async move {
                    match running.await {
                        Ok(value) => Ok(value.into_outcome()),
                        Err(error) => Err(failure_of(error.into())),
                    }
                }
            }
        }
    };
}

handler!(P; (payload, _context, _state) => payload);
handler!(P, Context; (payload, context, _state) => payload, context);
handler!(P, Context, Arc<S>; (payload, context, state) => payload, context, state.clone());

/// A handler whose types nobody needs any more: it takes JSON.
pub(crate) type AnyHandler =
    Arc<dyn Fn(&str, Context) -> BoxFuture<Result<Outcome, Failure>> + Send + Sync>;

/// Forgets the types of a handler.
pub(crate) fn erase<S, A, H>(handler: H, state: Arc<S>) -> AnyHandler
where
    S: Send + Sync + 'static,
    H: Handler<S, A>,
{
    Arc::new(move |payload, context| match serde_json::from_str(payload) {
        Ok(payload) => Box::pin(handler.call(payload, context, &state)),
        Err(error) => {
            let why = unfit(payload, &error);
            let message = format!("the payload is not what the handler takes: {why}");
            let failure = Failure::own(PAYLOAD_UNFIT, &message);
            Box::pin(async move { Err(failure) })
        }
    })
}
