//! The way of a call: who is it, may they, is the request within its bounds; then the handler.
//!
//! Every route goes through [`handle`], streams and operations included. There is no other way in.

use std::{sync::Arc, time::Instant};

use axum::{
    body::Body,
    extract::{RawPathParams, State, rejection::RawPathParamsRejection},
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
        request::Parts,
    },
};
use bytes::Bytes;
use schemars::{Schema, SchemaGenerator};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use windlass::{BoxFuture, Engine};
use windlass_kernel::{By, JobId, Refusal, TraceId};
use windlass_store::read::Scope;

use crate::http::core::{
    app::App,
    body,
    budget::Held,
    caller::{Access, Caller},
    heavy::{self, Heavy},
    places::Place,
    problem::Problem,
    query::{Param, Query},
    span::CallSpan,
};

/// The schema of a type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// One thing that can be called.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// With `{names}` for what varies.
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    /// Is it there only in development?
    pub(crate) dev: bool,
    /// In which chapter of the documents it stands.
    pub(crate) tag: &'static str,
    /// What it does, in a sentence.
    pub(crate) summary: &'static str,
    pub(crate) query: &'static [Param],
    /// What its body has to be.
    pub(crate) body: Option<SchemaOf>,
    /// What it answers when all is well: the status and the document, if it is JSON.
    pub(crate) answers: &'static [(u16, SchemaOf)],
    pub(crate) handler: fn(Call) -> BoxFuture<Result<Answer, Problem>>,
}

/// What a handler is given.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) caller: Caller,
    pub(crate) trace: TraceId,
    /// Did the caller bring the trace?
    pub(crate) trace_given: bool,
    /// The engine in the span of this call, if spans are told.
    pub(crate) in_span: Option<Engine>,
    /// What the route asks of its caller.
    pub(crate) access: Access,
    pub(crate) headers: HeaderMap,
    pub(crate) params: Vec<(String, String)>,
    pub(crate) query: Query,
    pub(crate) body: Bytes,
    /// What of the budget of memory the body takes.
    pub(crate) held: Option<Held>,
}

/// What a handler gives back.
pub(crate) struct Answer(pub(crate) Response<Body>);

impl Answer {
    /// A document.
    pub(crate) fn json(status: StatusCode, document: &impl Serialize) -> Self {
        let text = serde_json::to_string(document).expect("a document is plain data");
        Self::text(status, "application/json", text)
    }

    /// A document, and all is well.
    pub(crate) fn ok(document: &impl Serialize) -> Self {
        Self::json(StatusCode::OK, document)
    }

    /// Text of some type.
    pub(crate) fn text(status: StatusCode, content_type: &'static str, text: String) -> Self {
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = status;
        let value = HeaderValue::from_static(content_type);
        response.headers_mut().insert(header::CONTENT_TYPE, value);
        Self(response)
    }
}

impl Call {
    /// The engine.
    pub(crate) fn engine(&self) -> &Engine {
        self.in_span.as_ref().unwrap_or(&self.app.engine)
    }

    /// What a path's name stands for.
    pub(crate) fn param(&self, name: &str) -> &str {
        let pair = self.params.iter().find(|(known, _)| known == name);
        pair.map_or("", |(_, value)| value.as_str())
    }

    /// The job that the path names. What is no id of ours is nobody's.
    pub(crate) fn job_id(&self) -> Result<JobId, Problem> {
        self.param("id").parse().map_err(|_| Problem::not_found("job"))
    }

    /// Does the caller look after the whole server? Whoever sees every tenant does, and whoever needs no token.
    pub(crate) fn sees_the_whole(&self) -> bool {
        !self.caller.has_token || self.scope().tenant().is_none()
    }

    /// They, in this request.
    pub(crate) fn by(&self) -> By {
        self.caller.by(self.given_trace())
    }

    /// The trace that the caller brought.
    pub(crate) fn given_trace(&self) -> Option<&TraceId> {
        self.trace_given.then_some(&self.trace)
    }

    /// Whose things they can see.
    pub(crate) fn scope(&self) -> &Scope {
        &self.caller.scope
    }

    /// May the caller still do what they do? A stream outlives the call that began it.
    pub(crate) async fn still_allowed(&self) -> bool {
        let caller = self.app.caller(&self.headers, self.access).await;
        caller.is_ok_and(|caller| caller.check(self.access).is_ok())
    }

    /// Lets go of what was sent, before a long wait.
    pub(crate) fn forget_request(&mut self) {
        (self.headers, self.body, self.held) = (HeaderMap::new(), Bytes::new(), None);
    }

    /// The body as a document. An empty one is an empty object.
    pub(crate) fn body<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        let text = std::str::from_utf8(body)
            .map_err(|why| Problem::malformed(format!("the body is not UTF-8: {why}")))?;
        check_depth(text)?;
        // A list would be read as the members of an object in their order, which nobody means.
        if text.trim_start().starts_with('[') {
            return Err(Refusal::invalid("body", "must be an object").into());
        }
        serde_json::from_str(text).map_err(|why| unfit(&why))
    }
}

/// Reads one entry of a batch, so that one that cannot be read does not concern its neighbours.
pub(crate) fn read_entry<T: DeserializeOwned>(
    field: &'static str,
    entry: &RawValue,
) -> Result<T, Refusal> {
    if entry.get().starts_with('[') {
        return Err(Refusal::invalid(field, "must have objects as entries"));
    }
    let read = serde_json::from_str(entry.get());
    read.map_err(|why| Refusal::invalid(field, format!("has an entry that cannot be read: {why}")))
}

/// A body that is no JSON is malformed; JSON that does not fit is refused as any other value.
fn unfit(why: &serde_json::Error) -> Problem {
    let mut problem = Problem::malformed(format!("the body: {why}"));
    if why.is_data() {
        problem.status = StatusCode::UNPROCESSABLE_ENTITY;
        problem.code = "INVALID_INPUT";
        problem.title = "A value cannot be accepted; nothing was written.";
    }
    problem
}

/// Nothing that anybody means is nested as deep as what would use up the stack.
fn check_depth(text: &str) -> Result<(), Problem> {
    const DEPTH_MAX: usize = 72;
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(Problem::malformed(format!("the body is nested deeper than {DEPTH_MAX}")));
        }
    }
    Ok(())
}

/// Answers a call, whatever becomes of it.
pub(crate) async fn handle(
    State((app, route)): State<(Arc<App>, &'static Route)>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request<Body>,
) -> Response<Body> {
    let (trace, trace_given) = trace_of(request.headers(), &app);
    let span = CallSpan::begin(&app, request.headers(), &trace);
    let began = Instant::now();
    let method = request.method().clone();
    // In a box of its own, which is gone when the handler waits.
    let admitted = admitted(app.clone(), route, params, (trace.clone(), trace_given), request);
    let answer = match Box::pin(admitted).await {
        Ok(call) => {
            let in_span = span.as_ref().map(|span| span.engine(&app));
            answer(&app, route, Call { in_span, ..call }).await
        }
        Err(problem) => Err(problem),
    };
    let mut response = match answer {
        Ok(Answer(response)) => response,
        Err(problem) => {
            // Who sends too much is told so, and counted; a line for each would be too much as well.
            if problem.status.is_server_error() && problem.code != "OVERLOADED" {
                let Problem { code, detail, cause, .. } = &problem;
                let cause = cause.as_ref().map(|cause| cause.0.as_str());
                tracing::warn!(code, detail, cause, trace = %trace, "call failed");
            }
            app.figures.problem(problem.code);
            problem.response(trace.as_str())
        }
    };
    finish(response.headers_mut(), &trace);
    app.figures.call(route, response.status(), began.elapsed());
    if let Some(span) = span {
        span.end(&app, route, response.status());
    }
    tracing::debug!(
        %method, path = route.path, status = response.status().as_u16(),
        duration_ms = began.elapsed().as_millis(), trace = %trace, "call"
    );
    response
}

/// What every answer carries.
fn finish(headers: &mut HeaderMap, trace: &TraceId) {
    if let Ok(value) = HeaderValue::from_str(trace.as_str()) {
        headers.insert("x-trace-id", value);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Answers a call that was admitted.
///
/// The handler has the call before the future begins: an `async fn` would keep room for it, twice, beside the handler's own
/// for as long as that waits.
fn answer<'a>(
    app: &'a App,
    route: &'static Route,
    call: Call,
) -> impl Future<Output = Result<Answer, Problem>> + use<'a> {
    let scope = call.scope().clone();
    let is_heavy = heavy::is_heavy(route.method, route.path, call.body.len());
    let handling = (route.handler)(call);
    async move {
        let _place = app.place(route.access)?;
        let _turn = match heavy::is_long_read(route.method, route.path) {
            true => Some(app.lines.turn(&scope).await?),
            false => None,
        };
        let handled = match is_heavy {
            true => Heavy(handling).await,
            false => handling.await,
        };
        // What comes after the wait is in a box of its own, made when it is over.
        match handled {
            Ok(Answer(response)) => {
                let counted = body::counted(app, route.access, &scope, response);
                Box::pin(counted).await.map(Answer)
            }
            Err(problem) => Err(Box::pin(app.hide(problem, &scope)).await),
        }
    }
}

/// Who is it, may they, is the request within its bounds?
///
/// A call may wait for long, and nothing of the request may wait with it: the address, each header and the body are parts of
/// the buffer that the connection reads into, and one of them would keep all of it.
async fn admitted(
    app: Arc<App>,
    route: &'static Route,
    params: Result<RawPathParams, RawPathParamsRejection>,
    (trace, trace_given): (TraceId, bool),
    request: Request<Body>,
) -> Result<Call, Problem> {
    let params = params.map_err(|_| Problem::malformed("the path is not UTF-8"))?;
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let params = params.iter().map(owned).collect();
    let (parts, body) = request.into_parts();
    check_head(&parts)?;
    let text = parts.uri.query().unwrap_or("");
    if ["token", "access_token"].iter().any(|name| has_param(text, name)) {
        let detail = "a token in an address ends up in logs: send it as Authorization: Bearer TOKEN, \
                      and revoke this one";
        return Err(Problem::malformed(detail));
    }
    app.check_host(&parts.headers, &parts.uri)?;
    let caller = app.caller(&parts.headers, route.access).await?;
    caller.check(route.access)?;
    // Whoever asks whether a server lives must hear it, however much others call.
    if !matches!(route.path, "/healthz" | "/readyz") {
        app.limits.rates.check(&caller)?;
    }
    let query = Query::parse(text, route.query)?;
    if let Some(place) = parts.extensions.get::<Arc<Place>>()
        && route.access != Access::Open
    {
        place.prove();
    }
    let (body, held) = match route.method {
        "GET" => (Bytes::new(), None),
        _ => {
            let (body, held) = body::read(&app, &caller.scope, &parts.headers, body).await?;
            (body, Some(held))
        }
    };
    if route.body.is_none() && !body.is_empty() && body.trim_ascii() != b"{}" {
        return Err(Refusal::invalid("body", "must be left out: this call takes none").into());
    }
    let (headers, access) = (kept(&parts.headers), route.access);
    let in_span = None;
    Ok(Call {
        app,
        caller,
        trace,
        trace_given,
        in_span,
        access,
        headers,
        params,
        query,
        body,
        held,
    })
}

/// The most headers of a request, and bytes of them and its address. The HTTP library takes twice as much, so that most
/// of what is too much is answered with its numbers; beyond that `worded.rs` answers.
pub(crate) const HEADERS_MAX: usize = 100;
pub(crate) const HEAD_BYTES_MAX: usize = 32 * 1024;

fn check_head(parts: &Parts) -> Result<(), Problem> {
    let of_header = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let address = parts.uri.path_and_query().map_or(0, |it| it.as_str().len());
    let bytes = address + parts.headers.iter().map(of_header).sum::<usize>();
    let count = parts.headers.len();
    if bytes > HEAD_BYTES_MAX || count > HEADERS_MAX {
        let detail =
            format!("there are {count} headers, and with the address they have {bytes} bytes");
        return Err(Problem::head_too_large(detail));
    }
    Ok(())
}

/// Copies of the headers that handlers ask for.
fn kept(headers: &HeaderMap) -> HeaderMap {
    let names = ["authorization", "x-windlass-actor", "idempotency-key", "last-event-id"];
    let copy = |name| Some((name, HeaderValue::from_bytes(headers.get(name)?.as_bytes()).ok()?));
    let copies = names.into_iter().filter_map(copy);
    copies.map(|(name, value)| (HeaderName::from_static(name), value)).collect()
}

fn has_param(query: &str, name: &str) -> bool {
    form_urlencoded::parse(query.as_bytes()).any(|(known, _)| known == name)
}

/// The trace of a call: as it is given, or a new one.
fn trace_of(headers: &HeaderMap, app: &App) -> (TraceId, bool) {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let given = text("x-trace-id").map(str::to_owned).or_else(|| {
        let mut parts = text("traceparent")?.split('-');
        let (_, trace) = (parts.next()?, parts.next()?);
        let fits = trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit());
        fits.then(|| trace.to_owned())
    });
    if let Some(trace) = given.and_then(|text| TraceId::new(text).ok()) {
        return (trace, true);
    }
    let trace = TraceId::new(format!("{:032x}", app.engine.ids().random()));
    (trace.expect("digits are a trace"), false)
}

/// The answer where there is no route.
pub(crate) async fn no_route(
    State(app): State<Arc<App>>,
    method: Method,
    request: Request<Body>,
) -> Response<Body> {
    let (trace, _) = trace_of(request.headers(), &app);
    let detail = format!("there is no {method} {}", request.uri().path());
    let mut response = Problem::no_route(detail).response(trace.as_str());
    finish(response.headers_mut(), &trace);
    response
}

/// The answer where the path has other methods.
pub(crate) async fn no_method(
    State(app): State<Arc<App>>,
    method: Method,
    request: Request<Body>,
) -> Response<Body> {
    let (trace, _) = trace_of(request.headers(), &app);
    let detail = format!("{} has no {method}", request.uri().path());
    let mut response = Problem::method_not_allowed(detail).response(trace.as_str());
    finish(response.headers_mut(), &trace);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nested_too_deep_is_refused_and_brackets_in_text_do_not_count() {
        assert!(check_depth(&"[".repeat(73)).is_err());
        assert!(check_depth(&format!("\"{}\\\"[\"", "[".repeat(100))).is_ok());
        assert!(check_depth(&"[]".repeat(1_000)).is_ok());
    }
}
