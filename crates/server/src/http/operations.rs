//! What those who look after a server ask it.

use axum::http::StatusCode;
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
    let status = match tokio::time::timeout(std::time::Duration::from_secs(2), health).await {
        Ok(Ok(())) => return Ok(Answer::ok(&Health { status: "ok".to_owned() })),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the store does not answer".to_owned(),
    };
    Ok(Answer::json(StatusCode::SERVICE_UNAVAILABLE, &Health { status }))
}

/// `GET /metrics`
pub(crate) async fn metrics(call: Call) -> Result<Answer, Problem> {
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    Ok(Answer::text(StatusCode::OK, content_type, call.app.figures.text()))
}
