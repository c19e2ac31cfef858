//! The contract of runs, with its own documents.

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::RawValue;
use windlass_kernel::{
    IdempotencyKey, Kind, Payload, Queue, Refusal, TaskId, TraceId,
    contract::runs::{self, RunDocument},
    job::Priority,
    ops::NewJob,
};

use crate::http::{
    api::jobs::{cancel_job, create},
    core::{
        contract,
        problem::Problem,
        route::{Answer, Call},
    },
};

/// A run that is asked for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewRunBody {
    /// What it is a run of.
    #[schemars(with = "String")]
    task_id: TaskId,
    /// The name of the request: a known one gives its run, whatever else is sent.
    #[schemars(with = "String")]
    idempotency_key: IdempotencyKey,
    /// Which handler it needs; `default`, if nothing is said.
    #[schemars(with = "Option<String>")]
    kind: Option<Kind>,
    /// What the handler gets, byte for byte.
    #[schemars(with = "Option<serde_json::Value>")]
    payload: Option<Box<RawValue>>,
    /// Where it waits.
    #[schemars(with = "Option<String>")]
    queue: Option<Queue>,
    /// How urgent it is.
    #[schemars(with = "Option<i16>")]
    priority: Option<Priority>,
    /// How many times it is tried again.
    max_retries: Option<u32>,
    /// The trace it belongs to; one is made for the run, if nothing is said.
    #[schemars(with = "Option<String>")]
    trace_id: Option<TraceId>,
}

impl NewRunBody {
    fn into_new(self) -> Result<NewJob, Refusal> {
        let payload = self.payload.as_ref().map_or("null", |payload| payload.get());
        let payload = Payload::parse(payload, Payload::MAX_BYTES_DEFAULT)?;
        let kind = self.kind.map_or_else(|| Kind::new(NewJob::DEFAULT_NAME), Ok)?;
        let new = runs::create_for_task(self.task_id, self.idempotency_key, kind, payload);
        Ok(NewJob {
            queue: self.queue.unwrap_or_else(|| new.queue.clone()),
            priority: self.priority.unwrap_or(new.priority),
            max_retries: self.max_retries.unwrap_or(new.max_retries),
            trace_id: self.trace_id,
            ..new
        })
    }
}

/// `POST /api/v1/task-runs`
pub(crate) async fn enqueue(call: Call) -> Result<Answer, Problem> {
    let body: NewRunBody = call.body()?;
    let mut new = body.into_new()?;
    new.trace_id = new.trace_id.or_else(|| call.given_trace().cloned());
    let made = create(&call, None, new).await;
    let (hit, job) = made.map_err(|error| contract::problem(Some(&runs::CONTRACT), error))?;
    let status = if hit { StatusCode::OK } else { StatusCode::CREATED };
    Ok(Answer::json(status, &RunDocument::new(&job)))
}

/// `GET /api/v1/task-runs/{id}`
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    Ok(Answer::ok(&RunDocument::new(&call.app.job(&call, id).await?)))
}

/// `POST /api/v1/task-runs/{id}/cancel`
pub(crate) async fn cancel(call: Call) -> Result<Answer, Problem> {
    let id = call.job_id()?;
    cancel_job(call.in_words_of(&runs::CONTRACT), id).await
}
