//! What those who look after a server ask it.

use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    figures::StoreFigures,
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

/// `GET /metrics`: what this process counted, and what the store holds now.
pub(crate) async fn metrics(call: Call) -> Result<Answer, Problem> {
    let held = StoreFigures::default();
    let read = held.read(call.engine(), &call.app.counts, call.scope());
    let is_up = matches!(tokio::time::timeout(ASK_MAX, read).await, Ok(Ok(())));
    held.up(is_up);
    let text = call.app.figures.text() + &held.text();
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(Answer::text(StatusCode::OK, content_type, text + "# EOF\n"))
}

/// How long the store may take to answer.
const ASK_MAX: Duration = Duration::from_secs(2);
