//! The kind `http`: a job that calls a URL.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use windlass::{Context, HandlerResult, Outcome, Stop};
use windlass_kernel::{
    Failure, Payload,
    failure::{HTTP_REJECTED, HTTP_UNAVAILABLE, PAYLOAD_UNFIT},
};

use super::client::{Answered, Outgoing, Outward, host, identity};
use crate::config::HttpExecutor;

/// The name of the kind.
pub(crate) const KIND: &str = "http";

/// What all such jobs share.
#[derive(Debug)]
pub(crate) struct Http {
    pub(crate) outward: Outward,
    pub(crate) config: HttpExecutor,
}

/// What a job asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Call {
    url: String,
    method: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// A text is sent as it is, all else as JSON, byte for byte.
    body: Option<Box<RawValue>>,
    timeout_ms: Option<u64>,
    expect_status: Option<Expected>,
}

/// The statuses that mean success; any 2xx, if nothing is said.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Expected {
    One(u16),
    Any(Vec<u16>),
}

/// What came out, as the result of the job.
#[derive(Debug, Serialize)]
struct Kept {
    status: u16,
    headers: BTreeMap<&'static str, String>,
    body: Option<Box<RawValue>>,
    /// Was the body longer than what is kept of it?
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
}

/// Runs a job of this kind.
pub(crate) async fn run(
    call: Call,
    context: Context,
    http: std::sync::Arc<Http>,
) -> HandlerResult<Outcome> {
    let expected = call.expect_status.as_ref().map(Expected::statuses);
    let outgoing = outgoing(&call, identity(&context), &http.config)?;
    let host = host(&outgoing.url);
    let answered = tokio::select! {
        answered = http.outward.send(outgoing) => answered?,
        () = cancelled(&context) => return Ok(Outcome::cancelled(None)),
    };
    let is_success = match &expected {
        Some(statuses) => statuses.contains(&answered.status.as_u16()),
        None => answered.status.is_success(),
    };
    match is_success {
        true => Ok(Outcome::done(&Kept::new(&answered))),
        false => Err(failed(&host, answered.status, &answered.headers).into()),
    }
}

/// Ready when the job is to be cancelled. At a shutdown, a call may end within the grace period.
pub(super) async fn cancelled(context: &Context) {
    loop {
        match context.stopped().await {
            Stop::Cancelled | Stop::LeaseLost => return,
            // More may be said later: a job can be cancelled in the grace period.
            Stop::Shutdown => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

impl Expected {
    fn statuses(&self) -> Vec<u16> {
        match self {
            Expected::One(status) => vec![*status],
            Expected::Any(statuses) => statuses.clone(),
        }
    }
}

/// Headers that belong to the connection, not to the call.
const NOT_TO_SET: [HeaderName; 9] = [
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::HOST,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The call that the payload asks for.
fn outgoing(
    call: &Call,
    mut own_headers: HeaderMap,
    config: &HttpExecutor,
) -> Result<Outgoing, Failure> {
    let unfit = |why: String| Failure::own(PAYLOAD_UNFIT, &why);
    let url = Url::parse(&call.url).map_err(|error| unfit(format!("url: {error}")))?;
    let method = call.method.as_deref().unwrap_or("POST").to_ascii_uppercase();
    let method = match method.as_str() {
        "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS" => {
            Method::from_bytes(method.as_bytes()).expect("it is a method")
        }
        _ => {
            return Err(unfit(
                "method: it is GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS".into(),
            ));
        }
    };
    let mut headers = HeaderMap::new();
    let (content_type, body) = body(call.body.as_deref());
    headers.extend(content_type.map(|value| (header::CONTENT_TYPE, value)));
    for (name, value) in &call.headers {
        // The value may be a secret, so it is not told.
        let name = HeaderName::from_bytes(name.as_bytes());
        let name = name.map_err(|_| unfit("headers: a name cannot be sent".into()))?;
        if NOT_TO_SET.contains(&name) {
            return Err(unfit(format!("headers: {name} belongs to the connection; leave it out")));
        }
        let value = HeaderValue::from_str(value);
        let value = value.map_err(|_| unfit(format!("headers: {name} cannot be sent")))?;
        // A caller who knows better what is the same call says so.
        own_headers.remove(&name);
        headers.insert(name, value);
    }
    let asked = call.timeout_ms.map(Duration::from_millis);
    if asked.is_some_and(|timeout| timeout.is_zero()) {
        return Err(unfit("timeout_ms: it must be at least 1".into()));
    }
    let timeout = asked.unwrap_or(config.timeout).min(config.timeout);
    let bytes_max = config.response_bytes_max;
    Ok(Outgoing { method, url, headers, own_headers, body, timeout, bytes_max })
}

/// What is sent, and what it is.
fn body(body: Option<&RawValue>) -> (Option<HeaderValue>, Bytes) {
    let Some(body) = body.map(RawValue::get).filter(|text| *text != "null") else {
        return (None, Bytes::new());
    };
    let of = HeaderValue::from_static;
    match serde_json::from_str::<String>(body) {
        Ok(text) => (Some(of("text/plain; charset=utf-8")), text.into()),
        Err(_) => (Some(of("application/json")), body.to_owned().into()),
    }
}

/// What a status that is no success means.
fn failed(host: &str, status: StatusCode, headers: &HeaderMap) -> Failure {
    let message = format!("{host} answered {}", status.as_u16());
    if !matches!(status.as_u16(), 408 | 425 | 429 | 500..) {
        return Failure::own(HTTP_REJECTED, &message);
    }
    retry_after(Failure::own(HTTP_UNAVAILABLE, &message), headers)
}

/// The failure, tried again no sooner than the server asks for.
pub(crate) fn retry_after(failure: Failure, headers: &HeaderMap) -> Failure {
    match wait(headers, SystemTime::now()) {
        Some(wait) => failure.retry_after(wait),
        None => failure,
    }
}

/// The longest wait that a server can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the server asks to wait: so many seconds, or until a time.
fn wait(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

impl Kept {
    /// The headers that say something about the answer as such.
    const HEADERS: [&'static str; 7] = [
        "content-type",
        "etag",
        "last-modified",
        "location",
        "retry-after",
        "x-request-id",
        "x-trace-id",
    ];
    const HEADER_BYTES_MAX: usize = 1_024;

    fn new(answered: &Answered) -> Self {
        let header = |name: &'static str| {
            let value = answered.headers.get(name)?.to_str().ok()?;
            Some((name, value[..value.len().min(Self::HEADER_BYTES_MAX)].to_owned()))
        };
        Self {
            status: answered.status.as_u16(),
            headers: Self::HEADERS.into_iter().filter_map(header).collect(),
            body: Self::body(answered),
            truncated: answered.is_cut,
        }
    }

    /// JSON as it came, if it is some and whole; else text.
    fn body(answered: &Answered) -> Option<Box<RawValue>> {
        if answered.body.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&answered.body);
        let content_type = answered.headers.get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is_json = essence == "application/json" || essence.ends_with("+json");
        let fits = |text: &str| Payload::parse(text, Payload::MAX_BYTES_DEFAULT).is_ok();
        match is_json && !answered.is_cut && fits(text.trim()) {
            true => RawValue::from_string(text.trim().to_owned()).ok(),
            false => to_raw_value(&text).ok(),
        }
    }
}

#[cfg(test)]
mod tests;
