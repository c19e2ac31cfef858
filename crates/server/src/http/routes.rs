//! Every route: what can be called, by whom, with what.

use super::{
    caller::Access,
    claims, jobs, leases, operations,
    problem::Problem,
    query::Param,
    route::{Answer, Call, Route},
};

macro_rules! param {
    ($($name:literal: $doc:literal),* $(,)?) => {
        &[$(Param { name: $name, doc: $doc }),*]
    };
}

/// A route, and what its documents say of it.
macro_rules! route {
    ($method:literal $path:literal, $access:ident, $tag:literal, $summary:literal,
     query $query:expr, body $body:expr, answers [$($status:literal $answer:ty),*], $handler:path $(, dev $dev:literal)?) => {
        Route {
            method: $method,
            path: $path,
            access: Access::$access,
            dev: false $(|| $dev)?,
            tag: $tag,
            summary: $summary,
            query: $query,
            body: $body,
            answers: &[$(($status, |schemas| schemas.subschema_for::<$answer>())),*],
            handler: |call: Call| Box::pin($handler(call)) as windlass::BoxFuture<Result<Answer, Problem>>,
        }
    };
}

macro_rules! body {
    ($type:ty) => {
        Some(|schemas| schemas.subschema_for::<$type>())
    };
}

const NO_QUERY: &[Param] = &[];
const CONTRACT: &[Param] =
    param!["contract": "Answer in the words of a contract: runs, tasks, jobs or ingest."];
const FILTER: &[Param] = param![
    "state": "In one of these states, with commas in between.",
    "queue": "In this queue.",
    "kind": "Of this kind.",
    "tag": "With this tag.",
    "created_from": "Created at this time or later.",
    "created_before": "Created before this time.",
    "limit": "How many at the most, up to 1000; 100, if nothing is said.",
    "cursor": "The `next` of the page before.",
    "contract": "Answer in the words of a contract: runs, tasks, jobs or ingest.",
];
const EVENTS: &[Param] = param![
    "after": "After this number.",
    "limit": "How many at the most, up to 1000.",
    "contract": "Answer in the words of a contract: runs, tasks, jobs or ingest.",
];

/// Every route.
pub(crate) static ROUTES: &[Route] = &[
    route!("POST" "/api/v1/jobs", Enqueue, "jobs", "Enqueue a job.",
        query CONTRACT, body body!(jobs::NewJobBody),
        answers [201 jobs::EnqueuedDocument, 200 jobs::EnqueuedDocument], jobs::enqueue),
    route!("POST" "/api/v1/jobs/batch", Enqueue, "jobs", "Enqueue many jobs; each has its own answer.",
        query NO_QUERY, body body!(jobs::BatchBody),
        answers [200 jobs::Results<jobs::OpResult>], jobs::enqueue_batch),
    route!("GET" "/api/v1/jobs", Read, "jobs", "List jobs, newest first.",
        query FILTER, body None,
        answers [200 super::document::List<super::document::JobDocument>], jobs::list),
    route!("GET" "/api/v1/jobs/{id}", Read, "jobs", "A job as it stands.",
        query CONTRACT, body None, answers [200 super::document::JobDocument], jobs::show),
    route!("GET" "/api/v1/jobs/{id}/events", Read, "jobs", "The history of a job, in order.",
        query EVENTS, body None, answers [200 jobs::EventList], jobs::events),
    route!("GET" "/api/v1/jobs/{id}/attempts", Read, "jobs", "The attempts of a job, in order.",
        query NO_QUERY, body None,
        answers [200 super::document::List<jobs::AttemptDocument>], jobs::attempts),
    route!("GET" "/api/v1/jobs/{id}/why", Read, "jobs", "Why the job is not running.",
        query NO_QUERY, body None, answers [200 serde_json::Value], jobs::why),
    route!("POST" "/api/v1/jobs/{id}/cancel", Operate, "jobs", "Ask a job to stop, or stop it.",
        query CONTRACT, body body!(jobs::CancelBody),
        answers [200 super::document::JobDocument], jobs::cancel),
    route!("POST" "/api/v1/jobs/{id}/retry", Operate, "jobs",
        "Make a retry due now, or run the task of a job that failed or was cancelled again.",
        query CONTRACT, body None, answers [200 super::document::JobDocument], jobs::retry),
    route!("POST" "/api/v1/claims", Work, "workers", "Claim jobs, and wait until there are some.",
        query NO_QUERY, body body!(claims::ClaimBody), answers [200 claims::Leases], claims::claim),
    route!("POST" "/api/v1/leases/start", Work, "workers", "Begin to run what was claimed.",
        query NO_QUERY, body body!(leases::LeasesBody<leases::LeaseBody>),
        answers [200 jobs::Results<jobs::OpResult>], leases::start),
    route!("POST" "/api/v1/leases/renew", Work, "workers",
        "Keep leases, and hear which are lost and which jobs are to be cancelled.",
        query NO_QUERY, body body!(leases::RenewBody),
        answers [200 jobs::Results<jobs::OpResult>], leases::renew),
    route!("POST" "/api/v1/leases/settle", Work, "workers", "Report how executions ended.",
        query NO_QUERY, body body!(leases::LeasesBody<leases::SettleEntry>),
        answers [200 jobs::Results<jobs::OpResult>], leases::settle),
    route!("POST" "/api/v1/leases/release", Work, "workers", "Give back what was claimed.",
        query NO_QUERY, body body!(leases::LeasesBody<leases::LeaseBody>),
        answers [200 jobs::Results<jobs::OpResult>], leases::release),
    route!("GET" "/healthz", Open, "operations", "Does the process live?",
        query NO_QUERY, body None, answers [200 operations::Health], operations::healthz),
    route!("GET" "/readyz", Open, "operations", "Can it take work?",
        query NO_QUERY, body None,
        answers [200 operations::Health, 503 operations::Health], operations::readyz),
    route!("GET" "/metrics", Read, "operations", "Figures, as Prometheus reads them.",
        query NO_QUERY, body None, answers [], operations::metrics),
];
