//! The contract of tasks, with its own documents.

use axum::http::StatusCode;
use serde::Serialize;
use windlass_kernel::{
    Job, Payload, TaskId,
    contract::{
        Contract,
        tasks::{self, CreateTask, TaskDocument},
    },
};

use crate::http::{
    api::jobs::{cancel_job, create},
    core::{
        contract,
        problem::Problem,
        route::{Answer, Call},
    },
};

/// What the creator of a task is told.
#[derive(Serialize)]
struct Created {
    idempotent_hit: bool,
    task: TaskDocument,
}

/// `POST /api/v1/tasks`
pub(crate) async fn enqueue(call: Call) -> Result<Answer, Problem> {
    let body: CreateTask = call.body()?;
    let mut new = body.into_new_job(Payload::MAX_BYTES_DEFAULT)?;
    new.trace_id.get_or_insert_with(|| call.trace.clone());
    let made = create(&call, None, new).await;
    let (hit, job) = made.map_err(|error| contract::problem(Some(&tasks::CONTRACT), error))?;
    let status = if hit { StatusCode::OK } else { StatusCode::CREATED };
    let created = Created { idempotent_hit: hit, task: TaskDocument::new(&job) };
    Ok(Answer::json(status, &created))
}

/// `GET /api/v1/tasks/{id}`: the newest job of the task.
pub(crate) async fn show(call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&TaskDocument::new(&newest(&call).await?)))
}

/// `POST /api/v1/tasks/{id}/cancel`
pub(crate) async fn cancel(call: Call) -> Result<Answer, Problem> {
    let job = newest(&call).await?;
    cancel_job(call.in_words_of(&tasks::CONTRACT), job.id).await
}

async fn newest(call: &Call) -> Result<Job, Problem> {
    let task = TaskId::new(call.param("id")).map_err(|_| Problem::not_found("task"))?;
    let job = call.engine().own_store()?.newest_of_task(call.scope(), &task).await?;
    job.ok_or_else(|| Problem::not_found("task"))
}

impl Call {
    /// The same call, answered in the words of this contract.
    pub(crate) fn in_words_of(mut self, contract: &'static Contract) -> Self {
        self.query.set("contract", contract.name);
        self
    }
}
