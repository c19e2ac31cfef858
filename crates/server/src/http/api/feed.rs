//! The feed: everything that happens, in the order of the store, as pages and as a stream.

use std::{
    collections::HashMap,
    fmt::Write as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame};
use serde::Serialize;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use windlass::wire::{EventDocument, FeedDocument, List, raw};
use windlass_kernel::{JobId, Spec, contract::Contract};
use windlass_store::{
    Error,
    read::{FeedEvent, Traces},
};

use crate::http::core::{
    caller::Access,
    contract::{self, Json},
    pages::{Key, Page},
    problem::Problem,
    route::{Answer, Call},
};

/// `GET /api/v1/events`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let after = call.query.number("after", u64::MAX)?.unwrap_or(0);
    let limit = call.query.number("limit", 1_000)?.unwrap_or(100);
    let limit = u32::try_from(limit.max(1)).expect("it is bounded");
    let (items, upto) = page(&call, contract, after, limit).await?;
    let items = items.into_iter().map(|(_, item)| item).collect::<Vec<Json>>();
    Ok(Answer::ok(&List { items, next: Some(upto.to_string()) }))
}

/// A part of the feed as the caller sees it, with numbers, and how far it goes.
async fn page(
    call: &Call,
    contract: Option<&Contract>,
    after: u64,
    limit: u32,
) -> Result<(Vec<(u64, Json)>, u64), Error> {
    let store = call.engine().own_store()?;
    let feed = store.feed(call.scope(), after, limit).await?;
    let mut specs: HashMap<JobId, Option<Arc<Spec>>> = HashMap::new();
    let traces = match contract {
        Some(_) => Traces::new(),
        None => traces_of(call, &feed.events).await?,
    };
    let mut items = Vec::new();
    for told in feed.events.into_iter().filter(|told| is_open(call, told)) {
        let number = told.number;
        let spec = match (told.event(), contract) {
            (Some(event), Some(_)) => match specs.get(&event.job_id) {
                Some(spec) => spec.clone(),
                None => {
                    let job = store.job(call.scope(), event.job_id).await?;
                    let spec = job.map(|job| job.spec.clone());
                    specs.insert(event.job_id, spec.clone());
                    spec
                }
            },
            _ => None,
        };
        let document = match contract {
            Some(_) => tell(&told, contract, spec.as_deref()),
            None => shown(&told, &traces),
        };
        items.extend(document.map(|document| (number, document)));
    }
    Ok((items, feed.upto))
}

/// The traces of the jobs that these events speak of, as far as they brought none.
pub(crate) async fn traces_of(call: &Call, events: &[FeedEvent]) -> Result<Traces, Error> {
    let without = events.iter().filter_map(FeedEvent::event).filter(|it| it.trace_id.is_none());
    let mut ids: Vec<JobId> = without.map(|event| event.job_id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok(Traces::new());
    }
    call.engine().store().traces(call.scope(), ids).await
}

/// May the caller read what is told of tokens? It is for those who may read the audit.
fn tells_tokens(call: &Call) -> bool {
    Access::Admin.roles().contains(&call.caller.role)
}

/// May the caller read it?
fn is_open(call: &Call, told: &FeedEvent) -> bool {
    let is_of_token = || told.event().is_none() && told.line.contains(r#""about":"token""#);
    tells_tokens(call) || !is_of_token()
}

/// An event of the feed in the words of a contract, if it sees anything, or in our own. A contract needs the job's spec.
pub(crate) fn tell(
    told: &FeedEvent,
    contract: Option<&Contract>,
    spec: Option<&Spec>,
) -> Option<Json> {
    match (told.event(), contract) {
        (event, None) => {
            let of_job = event.and_then(|event| Some((event.job_id, spec?.trace_id.clone())));
            shown(told, &of_job.into_iter().collect())
        }
        (None, Some(_)) => None,
        (Some(event), Some(_)) => contract::event(contract, event, spec?, told.number),
    }
}

fn ours(told: &FeedEvent, kind: &'static str, payload: &impl Serialize) -> Json {
    let plain = "a document is plain data";
    let document = FeedDocument {
        number: told.number,
        tenant: told.tenant.to_string(),
        at: told.at,
        kind: kind.to_owned(),
        payload: serde_json::value::to_raw_value(payload).expect(plain),
    };
    serde_json::value::to_raw_value(&document).expect(plain)
}

/// What was told, in our own words, with the traces of jobs for events that brought none.
pub(crate) fn shown(told: &FeedEvent, traces: &Traces) -> Option<Json> {
    match told.event() {
        Some(event) => {
            let of_job = traces.get(&event.job_id);
            Some(ours(told, "job", &EventDocument::new(event, of_job)))
        }
        None => raw(note(told)).map(|line| ours(told, "note", &line)),
    }
}

/// A note as it was written, but for what names of rules begin with inside.
fn note(told: &FeedEvent) -> String {
    if !told.line.contains(r#""about":"rule""#) {
        return told.line.clone();
    }
    let tenant = serde_json::to_string(told.tenant.as_str()).expect("a name is text");
    let inside = format!(r#""name":"{}/"#, tenant.trim_matches('"'));
    told.line.replacen(&inside, r#""name":""#, 1)
}

/// How long a stream is silent at the most.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// A page is sent in pieces of so many bytes, each of which a reader has to take in time.
const PIECE: usize = 16 * 1024;
/// How many pieces wait for a slow reader, beside the one that is sent.
const PIECES_MAX: usize = 4;
/// A reader that takes nothing for so long is cut off.
pub(crate) const READER_MAX: Duration = Duration::from_secs(30);

/// `GET /api/v1/events/stream`
pub(crate) async fn stream(call: Call) -> Result<Answer, Problem> {
    let contract = call.query.contract()?;
    let last = call.headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let last = last.map(str::parse::<u64>).transpose();
    let last =
        last.map_err(|_| Problem::malformed("Last-Event-ID must be a number of an event"))?;
    let after = last.or(call.query.number("after", u64::MAX)?);
    let place = call.app.streams.enter(call.scope())?;
    let (frames, body) = mpsc::channel(PIECES_MAX);
    tokio::spawn(async move {
        follow(call, contract, after.unwrap_or(0), frames).await;
        drop(place);
    });
    Ok(event_stream(body))
}

/// An answer of server-sent events, as they come.
pub(crate) fn event_stream(frames: mpsc::Receiver<Bytes>) -> Answer {
    let mut response = Response::new(Body::new(Frames(frames)));
    let value = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    // A proxy that collects what it passes on would make it no stream.
    response.headers_mut().insert("x-accel-buffering", HeaderValue::from_static("no"));
    Answer(response)
}

/// Sends what happens, until the reader is gone, the server stops or the caller may no longer see it.
async fn follow(
    call: Call,
    contract: Option<&'static Contract>,
    mut after: u64,
    frames: mpsc::Sender<Bytes>,
) {
    let mut tail = call.app.tail.follow();
    let mut stopping = call.app.stopping.clone();
    let send = async |text: Bytes| {
        let sent = timeout(READER_MAX, frames.send(text)).await;
        matches!(sent, Ok(Ok(())))
    };
    if !send(Bytes::from_static(b"retry: 1000\n\n")).await {
        return;
    }
    loop {
        tail.mark_unchanged();
        if !call.still_allowed().await {
            return;
        }
        let tail_at = *tail.borrow();
        match shared_page(&call, contract, after, tail_at).await {
            Ok(Page { text, upto }) => {
                for from in (0..text.len()).step_by(PIECE) {
                    // A part of what all streams share: nothing is copied.
                    let piece = text.slice(from..text.len().min(from + PIECE));
                    if !send(piece).await {
                        return;
                    }
                }
                if upto > after {
                    after = upto;
                    continue;
                }
            }
            Err(error) => {
                let problem = Problem::from(error);
                let document = problem.document(call.trace.as_str());
                let text = serde_json::to_string(&document).expect("it is plain data");
                send(format!("event: problem\ndata: {text}\n\n").into()).await;
                return;
            }
        }
        let is_quiet = tokio::select! {
            biased;
            () = stopped(&mut stopping) => return,
            () = frames.closed() => return,
            waited = timeout(HEARTBEAT, tail.changed()) => waited.is_err(),
        };
        // The number, so that a reader of a quiet tenant does not begin anew.
        if is_quiet && !send(format!("id: {after}\n: quiet\n\n").into()).await {
            return;
        }
    }
}

/// A part of the feed as a stream tells it. One read serves all streams that stand at the same place.
async fn shared_page(
    call: &Call,
    contract: Option<&'static Contract>,
    after: u64,
    tail: u64,
) -> Result<Page, Error> {
    // The end of the feed is looked at once for all: what is not before it is not there.
    if after >= tail {
        return Ok(Page { text: Bytes::new(), upto: after });
    }
    let read = async {
        let (items, upto) = page(call, contract, after, 200).await?;
        let mut text = String::new();
        for (number, item) in items {
            write!(text, "id: {number}\ndata: {item}\n\n").expect("a string takes all");
        }
        text.shrink_to_fit();
        Ok(Page { text: text.into(), upto })
    };
    let (tenant, tells_tokens) = (call.scope().tenant().cloned(), tells_tokens(call));
    let key = Key { tenant, tells_tokens, contract: contract.map(|it| it.name), after, tail };
    call.app.pages.get(key, read).await
}

/// Ready when the server is to stop.
pub(crate) async fn stopped(stopping: &mut watch::Receiver<bool>) {
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

/// A body that is sent piece by piece.
struct Frames(mpsc::Receiver<Bytes>);

impl HttpBody for Frames {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
