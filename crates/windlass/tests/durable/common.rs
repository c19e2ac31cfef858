//! What the tests share: a job that names the code it runs, and counts of what happened outside.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
};

use serde::{Deserialize, Serialize};
use windlass::{
    BoxError, Engine, HandlerResult, JobId, Work,
    durable::{Ctx, DurableHandler, Fx},
    testing,
};
use windlass_kernel::{
    Actor, Event, Principal,
    ids::CorrelationKey,
    ledger::{MailContent, MailName},
    ops::Signal,
};
use windlass_store::{TenantOp, read::Scope};

/// A durable job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run(pub(crate) u32);

impl Work for Run {
    const KIND: &str = "run";
}

/// What happened outside: how often each thing was done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside(Arc<Mutex<BTreeMap<String, u32>>>);

impl Outside {
    pub(crate) fn note(&self, what: &str) -> u32 {
        let mut counts = self.0.lock().unwrap();
        let count = counts.entry(what.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// Everything that was done, and how often.
    pub(crate) fn all(&self) -> Vec<(String, u32)> {
        self.0.lock().unwrap().iter().map(|(what, count)| (what.clone(), *count)).collect()
    }

    pub(crate) fn count(&self, what: &str) -> u32 {
        self.0.lock().unwrap().get(what).copied().unwrap_or_default()
    }
}

/// A step's code that notes what it does and gives this back.
pub(crate) fn does<T: Clone + Send + 'static>(
    outside: &Outside,
    what: &str,
    result: T,
) -> impl Fn(Fx) -> std::pin::Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>> + Send + 'static
{
    let (outside, what) = (outside.clone(), what.to_owned());
    move |_| {
        let (outside, what, result) = (outside.clone(), what.clone(), result.clone());
        Box::pin(async move {
            outside.note(&what);
            Ok(result)
        })
    }
}

/// A handler that is a closure.
pub(crate) fn handler<F>(run: F) -> impl for<'c> DurableHandler<'c, Run>
where
    F: for<'c> Fn(&'c Ctx, Run) -> BoxFutureOfAny<'c> + Send + Sync + 'static,
{
    run
}

/// The same, for a payload of another type.
pub(crate) fn programs<P, F>(run: F) -> impl for<'c> DurableHandler<'c, P>
where
    P: Send + 'static,
    F: for<'c> Fn(&'c Ctx, P) -> BoxFutureOfAny<'c> + Send + Sync + 'static,
{
    run
}

pub(crate) type BoxFutureOfAny<'c> =
    std::pin::Pin<Box<dyn Future<Output = HandlerResult<serde_json::Value>> + Send + 'c>>;

/// An engine in memory.
pub(crate) fn engine() -> Engine {
    testing::engine().unwrap()
}

pub(crate) async fn send(engine: &Engine, id: JobId, key: &str, payload: &str) {
    let content = MailContent::Payload(windlass_kernel::Payload::parse(payload, 1000).unwrap());
    deliver(engine, id, MailName::Signal(CorrelationKey::new(key).unwrap()), content).await;
}

pub(crate) async fn deliver(engine: &Engine, job_id: JobId, name: MailName, content: MailContent) {
    let by = Actor::User(Principal::new("ann").unwrap()).into();
    let op = Signal { job_id, name, content, expect_waiting: false, by }.into();
    let tenant = engine.job(job_id).await.unwrap().spec.tenant.clone();
    engine.submit(TenantOp { tenant, op }).await.unwrap();
}

pub(crate) async fn causes(engine: &Engine, id: JobId) -> Vec<String> {
    let events: Vec<Event> = engine.store().events(&Scope::Every, id).await.unwrap();
    events.iter().map(|event| event.cause.to_string()).collect()
}
