//! What those who look after a server ask it.

use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::http::core::{
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

/// `GET /healthz`: the process lives, and its store does. If this fails, the process is about to end.
pub(crate) async fn healthz(call: Call) -> Result<Answer, Problem> {
    match call.engine().health().stopped {
        None => Ok(Answer::ok(&Health { status: "ok".to_owned() })),
        Some(error) => Ok(unavailable(error.to_string())),
    }
}

/// `GET /readyz`: it can take work, and do what is due.
pub(crate) async fn readyz(call: Call) -> Result<Answer, Problem> {
    Ok(match why_not_ready(&call).await {
        None => Answer::ok(&Health { status: "ok".to_owned() }),
        Some(why) => unavailable(why),
    })
}

fn unavailable(status: String) -> Answer {
    Answer::json(StatusCode::SERVICE_UNAVAILABLE, &Health { status })
}

async fn why_not_ready(call: &Call) -> Option<String> {
    if let Some(error) = call.engine().health().stopped {
        return Some(error.to_string());
    }
    if *call.app.stopping.borrow() {
        return Some("stopping".to_owned());
    }
    match tokio::time::timeout(ASK_MAX, call.engine().check()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Some(error.to_string()),
        Err(_) => return Some("the store does not answer".to_owned()),
    }
    let health = call.engine().health();
    let writes = health.writes.map(|error| format!("nothing can be written: {error}"));
    writes.or_else(|| health.timers.map(|error| format!("timers cannot look: {error}")))
}

/// `GET /metrics`: what this process counted, and what the store holds now.
pub(crate) async fn metrics(call: Call) -> Result<Answer, Problem> {
    let held = StoreFigures::default();
    let read = held.read(call.engine(), &call.app.counts, call.scope());
    let is_whole = matches!(tokio::time::timeout(ASK_MAX, read).await, Ok(Ok(())));
    // A question that took too long says nothing about whether the store is there.
    let health = call.engine().store().health();
    let is_up = is_whole || matches!(tokio::time::timeout(ASK_MAX, health).await, Ok(Ok(())));
    held.up(is_up);
    held.count(&call.app.figures.totals, call.scope());
    let text = call.app.figures.text() + &held.text();
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(Answer::text(StatusCode::OK, content_type, text + "# EOF\n"))
}

/// How long the store may take to answer.
const ASK_MAX: Duration = Duration::from_secs(2);
