//! Everything at a glance, in one call: queues, workers, what was done since the start, and alerts. For those who look
//! again and again.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use schemars::JsonSchema;
use serde::Serialize;
use windlass::Tallied;
use windlass::wire::{QueueDocument, WorkerDocument};
use windlass_kernel::Timestamp;

use crate::http::{
    api::{
        alerts::{self, Alert},
        queues,
    },
    core::{
        problem::Problem,
        route::{Answer, Call},
    },
};

/// The most workers that are shown. `GET /api/v1/workers` has all, page by page.
const WORKERS_MAX: usize = 1_000;

/// Everything at a glance.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Overview {
    /// What time it is, by the clock that decides.
    #[schemars(with = "String")]
    now: Timestamp,
    /// When the jobs of the queues were counted: of a million, not with each call.
    #[schemars(with = "String")]
    counted_at: Timestamp,
    /// Queues, with how many jobs are in each state: the 1,000 that have most to do, at the most.
    queues: Vec<QueueDocument>,
    /// How many queues are not among them.
    queues_left_out: usize,
    /// Workers by name, and how many jobs they hold; the first of them, if there are very many.
    workers: Vec<WorkerDocument>,
    /// What this server has done since it began to serve; null for a tenant that shares it.
    totals: Option<Totals>,
    /// What somebody should look at.
    alerts: Vec<Alert>,
    /// Does somebody look for alerts? A server does; a command that reads the database itself does not.
    alerts_known: bool,
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
    let is_whole = call.sees_the_whole();
    let (queues, counted_at) = queues::read(&call).await?;
    let workers = queues::read_workers(&call).await?;
    let mut queues: Vec<QueueDocument> = queues.into_values().collect();
    let queues_left_out = queues.len().saturating_sub(queues::QUEUES_MAX);
    if queues_left_out > 0 {
        let names: BTreeSet<String> = {
            let mut busiest: Vec<&QueueDocument> = queues.iter().collect();
            busiest.sort_by_key(|queue| Reverse(queue.open()));
            busiest.iter().take(queues::QUEUES_MAX).map(|it| it.name().to_owned()).collect()
        };
        queues.retain(|queue| names.contains(queue.name()));
    }
    Ok(Answer::ok(&Overview {
        now: call.engine().now(),
        counted_at,
        queues,
        queues_left_out,
        workers: queues::page_of_workers(workers.into_iter(), WORKERS_MAX).items,
        totals: (is_whole && call.app.is_serving()).then(|| call.engine().tally().into()),
        alerts: alerts::seen_by(&call),
        alerts_known: call.app.is_serving(),
    }))
}
