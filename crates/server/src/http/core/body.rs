//! Bodies: what a request brings and what an answer takes, within their bounds and within the budget of memory.

use axum::{
    body::Body,
    http::{HeaderMap, Response, header},
};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body as _;
use windlass_store::read::Scope;

use crate::http::core::{app::App, budget::Held, caller::Access, problem::Problem};

/// The body of a request, and what of the budget it takes.
pub(crate) async fn read(
    app: &App,
    scope: &Scope,
    headers: &HeaderMap,
    body: Body,
) -> Result<(Bytes, Held), Problem> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|value| value != "identity") {
        return Err(Problem::not_json("a body that is compressed is not taken"));
    }
    let limits = app.limits.now();
    let max = limits.body_bytes_max;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = length.and_then(|length| length.parse::<usize>().ok());
    if length.is_some_and(|length| length > max) {
        return Err(Problem::too_large(format!("the body is longer than {max} bytes")));
    }
    let held = app.limits.budget.take(scope.tenant(), length.unwrap_or(0)).ok_or_else(full)?;
    let reading = collect(Limited::new(body, max), length.unwrap_or(0), held, max);
    let Ok(read) = tokio::time::timeout(limits.body_timeout, reading).await else {
        return Err(Problem::too_slow("the body did not come in time"));
    };
    let (bytes, held) = read?;
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let plain = content_type.map(|value| value.split(';').next().unwrap_or("").trim());
    let is_json = plain.is_some_and(|plain| {
        plain.eq_ignore_ascii_case("application/json") || plain.ends_with("+json")
    });
    // A page of another origin can send text without being asked, and nothing else.
    if !bytes.is_empty() && !is_json {
        return Err(Problem::not_json("Content-Type must be application/json"));
    }
    Ok((bytes, held))
}

/// Reads a body piece by piece. What comes without a length takes of the budget as it comes.
async fn collect(
    mut body: Limited<Body>,
    length: usize,
    mut held: Held,
    max: usize,
) -> Result<(Bytes, Held), Problem> {
    let mut bytes = Vec::with_capacity(length);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match error.is::<LengthLimitError>() {
            true => Problem::too_large(format!("the body is longer than {max} bytes")),
            false => Problem::malformed(format!("the body broke off: {error}")),
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let more = (bytes.len() + data.len()).saturating_sub(held.bytes());
        if more > 0 && !held.grow(more) {
            return Err(full());
        }
        bytes.extend_from_slice(&data);
    }
    Ok((bytes.into(), held))
}

/// Is there room for the answer of a call that cannot be taken back?
pub(crate) fn room(app: &App, scope: &Scope) -> Result<(), Problem> {
    match app.limits.budget.has_room(scope.tenant()) {
        true => Ok(()),
        false => Err(full()),
    }
}

fn full() -> Problem {
    let detail = "as many bytes as the server can hold are being read and written";
    Problem { retry_after: Some(1), ..Problem::overloaded(detail) }
}

/// Answers up to this size are not counted: there are no more of them than calls.
const SMALL: u64 = 16 * 1024;

/// An answer that takes of the budget until its last byte is written.
struct Counted {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Counts an answer. One for which there is no room is not sent, unless it is a worker's: it tells of leases, which would
/// be lost with it. A claim asks [`room`] before it takes any.
pub(crate) async fn counted(
    app: &App,
    access: Access,
    scope: &Scope,
    response: Response<Body>,
) -> Result<Response<Body>, Problem> {
    let size = response.body().size_hint().exact().filter(|size| *size > SMALL);
    let Some(size) = size.and_then(|size| usize::try_from(size).ok()) else { return Ok(response) };
    let (budget, tenant) = (&app.limits.budget, scope.tenant());
    let held = match access {
        Access::Work => budget.take_anyway(tenant, size),
        _ => budget.take(tenant, size).ok_or_else(full)?,
    };
    let (parts, body) = response.into_parts();
    let whole = body.collect().await.map_err(|why| Problem::internal(why.to_string()))?;
    let bytes = Bytes::from_owner(Counted { bytes: whole.to_bytes(), _held: held });
    Ok(Response::from_parts(parts, Body::from(bytes)))
}
