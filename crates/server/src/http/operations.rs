//! What those who look after a server ask it.

use std::{sync::atomic::AtomicU64, time::Duration};

use axum::http::StatusCode;
use prometheus_client::{
    encoding::{
        EncodeLabelSet,
        text::{encode_eof, encode_registry},
    },
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    problem::Problem,
    route::{Answer, Call},
};

/// How a server is.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok`, or why not.
    status: String,
}

/// `GET /healthz`: the process lives.
pub(crate) async fn healthz(_call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&Health { status: "ok".to_owned() }))
}

/// `GET /readyz`: it can take work.
pub(crate) async fn readyz(call: Call) -> Result<Answer, Problem> {
    if *call.app.stopping.borrow() {
        let status = "stopping".to_owned();
        return Ok(Answer::json(StatusCode::SERVICE_UNAVAILABLE, &Health { status }));
    }
    let health = call.engine().store().health();
    let status = match tokio::time::timeout(ASK_MAX, health).await {
        Ok(Ok(())) => return Ok(Answer::ok(&Health { status: "ok".to_owned() })),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the store does not answer".to_owned(),
    };
    Ok(Answer::json(StatusCode::SERVICE_UNAVAILABLE, &Health { status }))
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    queue: String,
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
}

/// `GET /metrics`: what this process counted, and what the store holds now.
pub(crate) async fn metrics(call: Call) -> Result<Answer, Problem> {
    let mut registry = Registry::with_prefix("windlass");
    let (jobs, ages) = (
        Family::<JobLabels, Gauge>::default(),
        Family::<QueueLabels, Gauge<f64, AtomicU64>>::default(),
    );
    let (workers, held, up) =
        (Gauge::<i64>::default(), Gauge::<i64>::default(), Gauge::<i64>::default());
    registry.register("jobs", "Jobs that are kept, by queue and state", jobs.clone());
    let help = "For how long the job has been ready that waits longest, by queue";
    registry.register_with_unit("oldest_ready", help, Unit::Seconds, ages.clone());
    registry.register("workers", "Worker sessions that are known", workers.clone());
    registry.register("jobs_held", "Jobs that workers hold", held.clone());
    registry.register("store_up", "Whether the store answers: 1 or 0", up.clone());
    let store = call.engine().store();
    let read = async {
        for (queue, state, count) in store.counts(call.scope()).await? {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            jobs.get_or_create(&JobLabels { queue, state }).inc_by(count);
        }
        for oldest in store.oldest_ready(call.scope()).await? {
            let age = call.engine().now().since(oldest.since).as_secs_f64();
            ages.get_or_create(&QueueLabels { queue: oldest.queue.to_string() }).set(age);
        }
        let sessions = store.sessions().await?;
        workers.set(i64::try_from(sessions.len()).unwrap_or(i64::MAX));
        let count: u64 = sessions.iter().map(|session| session.held).sum();
        held.set(i64::try_from(count).unwrap_or(i64::MAX));
        Ok::<(), windlass_store::Error>(())
    };
    let is_up = matches!(tokio::time::timeout(ASK_MAX, read).await, Ok(Ok(())));
    up.set(i64::from(is_up));
    let mut text = call.app.figures.text();
    encode_registry(&mut text, &registry).expect("a string takes everything");
    encode_eof(&mut text).expect("a string takes everything");
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(Answer::text(StatusCode::OK, content_type, text))
}

/// How long the store may take to answer.
const ASK_MAX: Duration = Duration::from_secs(2);
