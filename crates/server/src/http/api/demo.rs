//! The demo of `windlass dev`, for `windlass demo`.

use axum::http::StatusCode;

use crate::demo;
use crate::http::core::{
    problem::Problem,
    route::{Answer, Call},
};
use windlass::wire::{JobDocument, List};

/// `POST /api/v1/internal/demo`: where no worker of the demo runs, there is no demo.
pub(crate) async fn enqueue(call: Call) -> Result<Answer, Problem> {
    if !call.app.has_demo() {
        return Err(Problem::not_found("demo"));
    }
    let engine = call.engine().acting_as(call.caller.principal.as_str())?;
    let engine = match call.scope().tenant() {
        Some(tenant) => engine.tenant(tenant.as_str())?,
        None => engine,
    };
    let mut items = Vec::new();
    for made in demo::enqueue(&engine).await? {
        items.push(JobDocument::from(&call.app.job(&call, made.id).await?));
    }
    Ok(Answer::json(StatusCode::CREATED, &List { items, next: None }))
}
