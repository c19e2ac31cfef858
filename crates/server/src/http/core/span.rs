//! The span of a call: from its first look at the headers to its answer.

use std::time::SystemTime;

use axum::http::{HeaderMap, StatusCode};
use opentelemetry::{KeyValue, trace::SpanKind};
use windlass::{Engine, TraceContext};
use windlass_kernel::TraceId;

use crate::http::core::{app::App, route::Route};
use crate::traces::Span;

/// A call that is being answered.
pub(crate) struct CallSpan {
    at: TraceContext,
    parent: Option<TraceContext>,
    began: SystemTime,
}

impl CallSpan {
    /// None, if nobody listens.
    pub(crate) fn begin(app: &App, headers: &HeaderMap, trace: &TraceId) -> Option<Self> {
        if !app.traces.is_on() {
            return None;
        }
        let parent = headers.get("traceparent").and_then(|value| value.to_str().ok());
        let parent = parent.and_then(|text| text.parse::<TraceContext>().ok());
        let random = app.engine.ids().random();
        let span = u64::try_from(random & u128::from(u64::MAX)).unwrap_or(1);
        let sampled = parent.is_none_or(|parent| parent.sampled);
        let at = TraceContext { sampled, ..TraceContext::new(trace, span) };
        Some(Self { at, parent, began: SystemTime::now() })
    }

    /// The engine, for what is done in this call.
    pub(crate) fn engine(&self, app: &App) -> Engine {
        app.engine.in_span(self.at)
    }

    /// It is answered. A stream has only begun.
    pub(crate) fn end(self, app: &App, route: &Route, status: StatusCode) {
        let code = i64::from(status.as_u16());
        app.traces.tell(Span {
            name: format!("{} {}", route.method, route.path),
            kind: SpanKind::Server,
            at: self.at,
            parent: self.parent,
            links: Vec::new(),
            began: self.began,
            ended: SystemTime::now(),
            attributes: vec![
                KeyValue::new("http.request.method", route.method),
                KeyValue::new("http.route", route.path),
                KeyValue::new("http.response.status_code", code),
            ],
            error: status.is_server_error().then(|| status.as_u16().to_string()),
        });
    }
}
