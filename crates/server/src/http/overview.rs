//! Everything at a glance, in one call: queues, workers, what was done since the start, and alerts. For those who look
//! again and again.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;
use windlass::{Engine, Tallied};
use windlass_kernel::Timestamp;
use windlass_store::read::Scope;

use super::{
    alerts::{self, Alert},
    problem::Problem,
    queues::{self, QueueDocument, WorkerDocument},
    route::{Answer, Call},
};

/// Everything at a glance.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// What time it is, by the clock that decides.
    #[schemars(with = "String")]
    now: Timestamp,
    /// When the jobs of the queues were counted: of a million, not with each call.
    #[schemars(with = "String")]
    counted_at: Timestamp,
    /// Queues, with how many jobs are in each state.
    queues: Vec<QueueDocument>,
    /// Workers, and how many jobs they hold.
    workers: Vec<WorkerDocument>,
    /// What this server has done since it began to serve; null for a tenant that shares it.
    totals: Option<Totals>,
    /// What somebody should look at.
    alerts: Vec<Alert>,
}

/// What a server has done since it began to serve.
#[derive(Serialize, JsonSchema)]
struct Totals {
    /// Jobs that were made.
    enqueued: u64,
    /// Executions that began.
    started: u64,
    /// Jobs that were done, be it in part.
    succeeded: u64,
    /// Failures that are tried again.
    retried: u64,
    /// Jobs that were given up.
    failed: u64,
    /// Jobs that were cancelled.
    cancelled: u64,
    /// Executions that were cut off.
    interrupted: u64,
    /// Executions that began, by queue.
    started_by_queue: BTreeMap<String, u64>,
}

impl From<Tallied> for Totals {
    fn from(tallied: Tallied) -> Self {
        Self {
            enqueued: tallied.enqueued,
            started: tallied.started,
            succeeded: tallied.succeeded,
            retried: tallied.retried,
            failed: tallied.failed,
            cancelled: tallied.cancelled,
            interrupted: tallied.interrupted,
            started_by_queue: tallied.started_by_queue,
        }
    }
}

/// `GET /api/v1/overview`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    let is_whole = match call.scope() {
        Scope::Every => true,
        Scope::Of(own) => own.as_str() == Engine::TENANT_DEFAULT,
    };
    let (queues, counted_at) = queues::read(&call).await?;
    Ok(Answer::ok(&Overview {
        now: call.engine().now(),
        counted_at,
        queues: queues.into_values().collect(),
        workers: queues::read_workers(&call).await?,
        totals: (is_whole && call.app.is_serving()).then(|| call.engine().tally().into()),
        alerts: alerts::seen_by(&call),
    }))
}
