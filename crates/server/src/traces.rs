//! Traces: calls, enqueues and executions as spans, told to a collector by OTLP.
//!
//! Off unless a collector is named, and then nothing is made or measured. A span that has ended goes into a queue with
//! a bound; nobody waits for the collector. While it is away spans are lost and counted, and it is said once.
//!
//! Ids of spans follow from jobs ([`TraceContext`]), so an execution has its enqueue as its parent wherever both happened.

use std::{
    env,
    sync::Arc,
    time::{Duration, SystemTime},
};

use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId as OtelTraceId,
    trace::{Link, SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks},
};
use prometheus_client::metrics::counter::Counter;
use reqwest::{Client, redirect::Policy};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};
use windlass::{BoxFuture, Context, Failure, Middleware, Next, Outcome, TraceContext};
use windlass_kernel::{Job, JobId, Kind, Queue, Timestamp, TraceId};

use crate::executors::client::tls;

/// `[traces]`, and the variables of OpenTelemetry below it.
pub(crate) use crate::config::Traces as Settings;

/// The most spans that wait for the collector.
const QUEUE_MAX: usize = 4_096;
/// The most spans of one call.
const BATCH_MAX: usize = 512;
/// How long a span waits for others to go with.
const PAUSE: Duration = Duration::from_millis(500);
/// How long one call to the collector may take, and all that is left when the server stops.
const CALL_MAX: Duration = Duration::from_secs(5);

/// Where spans are told. Clones tell to the same place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traces {
    told: Option<Arc<Told>>,
    pub(crate) counts: SpanCounts,
}

#[derive(Debug)]
struct Told {
    queue: mpsc::Sender<SpanData>,
    scope: InstrumentationScope,
}

/// How many spans the collector took, and how many are lost.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanCounts {
    pub(crate) sent: Counter,
    pub(crate) lost: Counter,
}

/// Tells what is in the queue. It has to be waited for at the end.
pub(crate) struct Teller {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Teller {
    /// Tells what is left, but does not wait for ever.
    pub(crate) async fn finish(self) {
        let _ = self.stop.send(());
        let _ = timeout(CALL_MAX, self.task).await;
    }
}

/// A span that has ended.
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) kind: SpanKind,
    pub(crate) at: TraceContext,
    /// What it belongs to. In another trace it is a link.
    pub(crate) parent: Option<TraceContext>,
    pub(crate) began: SystemTime,
    pub(crate) attributes: Vec<KeyValue>,
    /// Why it did not go well.
    pub(crate) error: Option<String>,
}

/// A job that is about to be made.
pub(crate) struct Enqueued {
    pub(crate) job_id: JobId,
    pub(crate) trace: TraceId,
    pub(crate) kind: Kind,
    pub(crate) queue: Queue,
}

impl Traces {
    /// Begins to tell, if a collector is named. The error says what to do.
    pub(crate) fn open(settings: &Settings) -> Result<(Self, Option<Teller>), String> {
        let counts = SpanCounts::default();
        let Some(endpoint) = endpoint(settings) else {
            return Ok((Self { told: None, counts }, None));
        };
        let client = Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(CALL_MAX)
            .tls_backend_preconfigured(tls()?)
            .build()
            .map_err(|error| format!("cannot call a collector: {error}"))?;
        let mut builder = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(opentelemetry_otlp::Protocol::HttpBinary);
        if let Some(endpoint) = endpoint.of_the_file {
            builder = builder.with_endpoint(endpoint);
        }
        let mut exporter = builder.build().map_err(|error| format!("traces: {error}"))?;
        exporter.set_resource(&resource(settings));
        let (queue, told) = mpsc::channel(QUEUE_MAX);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(tell(exporter, told, stopped, counts.clone()));
        let scope = InstrumentationScope::builder("windlass").with_version(VERSION).build();
        let told = Some(Arc::new(Told { queue, scope }));
        Ok((Self { told, counts }, Some(Teller { stop, task })))
    }

    /// Does anybody listen?
    pub(crate) fn is_on(&self) -> bool {
        self.told.is_some()
    }

    /// A span has ended.
    pub(crate) fn tell(&self, span: Span) {
        let Some(told) = self.told.as_ref().filter(|_| span.at.sampled) else { return };
        let parent = span.parent.filter(|parent| parent.trace == span.at.trace);
        let others = span.parent.filter(|parent| parent.trace != span.at.trace);
        let links = others.map(|other| Link::new(context_of(&other, true), Vec::new(), 0));
        let data = SpanData {
            span_context: context_of(&span.at, false),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span)),
            parent_span_is_remote: parent.is_some(),
            span_kind: span.kind,
            name: span.name.into(),
            start_time: span.began,
            end_time: SystemTime::now().max(span.began),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: {
                let mut all = SpanLinks::default();
                all.links.extend(links);
                all
            },
            status: span.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: told.scope.clone(),
        };
        if told.queue.try_send(data).is_err() {
            self.counts.lost.inc();
        }
    }

    /// A job was made by a call.
    pub(crate) fn enqueued(&self, call: Option<TraceContext>, job: &Enqueued, began: SystemTime) {
        let at = TraceContext::of_enqueue(&job.trace, job.job_id);
        self.tell(Span {
            name: format!("enqueue {}", job.kind),
            kind: SpanKind::Producer,
            at: TraceContext { sampled: call.is_none_or(|call| call.sampled), ..at },
            parent: call,
            began,
            attributes: attributes("send", job.job_id, &job.kind, &job.queue),
            error: None,
        });
    }

    /// A job has run, here or elsewhere.
    pub(crate) fn executed(
        &self,
        job: &Job,
        worker: &str,
        began: SystemTime,
        error: Option<String>,
    ) {
        let spec = &job.spec;
        let mut attributes = attributes("process", job.id, &spec.kind, &spec.queue);
        attributes.push(KeyValue::new("windlass.attempt", i64::from(job.attempt)));
        attributes.push(KeyValue::new("windlass.worker", worker.to_owned()));
        self.tell(Span {
            name: format!("execute {}", spec.kind),
            kind: SpanKind::Consumer,
            at: TraceContext::of_execution(job),
            parent: Some(TraceContext::of_enqueue(&spec.trace_id, job.id)),
            began,
            attributes,
            error,
        });
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The words of OpenTelemetry for messages. Payloads are never among them.
fn attributes(operation: &'static str, id: JobId, kind: &Kind, queue: &Queue) -> Vec<KeyValue> {
    vec![
        KeyValue::new("messaging.system", "windlass"),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", queue.to_string()),
        KeyValue::new("messaging.message.id", id.to_string()),
        KeyValue::new("windlass.kind", kind.to_string()),
    ]
}

fn context_of(context: &TraceContext, is_remote: bool) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (OtelTraceId::from(context.trace), SpanId::from(context.span));
    SpanContext::new(trace, span, flags, is_remote, TraceState::default())
}

/// The time of a row.
pub(crate) fn system_time(at: Timestamp) -> SystemTime {
    let micros = u64::try_from(at.as_micros()).unwrap_or(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}

/// Where the collector is: said by the file, or by a variable that the exporter reads itself.
struct Endpoint {
    of_the_file: Option<String>,
}

fn endpoint(settings: &Settings) -> Option<Endpoint> {
    let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let is = |name, word: &str| variable(name).is_some_and(|it| it.eq_ignore_ascii_case(word));
    if is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none") {
        return None;
    }
    if let Some(url) = &settings.endpoint {
        // A collector is named by its root, as in the variable.
        let mut url = url.clone();
        if url.path() == "/" {
            url.set_path("/v1/traces");
        }
        return Some(Endpoint { of_the_file: Some(url.into()) });
    }
    let names = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    names.into_iter().find_map(variable).map(|_| Endpoint { of_the_file: None })
}

/// Who tells: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, or the file.
fn resource(settings: &Settings) -> Resource {
    let builder = Resource::builder().with_attribute(KeyValue::new("service.version", VERSION));
    let named = env::var_os("OTEL_SERVICE_NAME").is_some()
        || env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|it| it.contains("service.name="));
    match named {
        true => builder.build(),
        false => builder.with_service_name(settings.service_name.clone()).build(),
    }
}

/// Sends what is in the queue, some at a time, until it is told to stop and nothing is left.
async fn tell(
    exporter: SpanExporter,
    mut queue: mpsc::Receiver<SpanData>,
    mut stop: oneshot::Receiver<()>,
    counts: SpanCounts,
) {
    let (mut stopping, mut is_away) = (false, false);
    loop {
        let mut batch = Vec::new();
        tokio::select! {
            biased;
            _ = &mut stop, if !stopping => {
                stopping = true;
                queue.close();
                continue;
            }
            received = queue.recv_many(&mut batch, BATCH_MAX) => if received == 0 {
                return;
            },
        }
        if !stopping && batch.len() < BATCH_MAX {
            tokio::select! {
                () = sleep(PAUSE) => {}
                _ = &mut stop => {
                    stopping = true;
                    queue.close();
                }
            }
        }
        while batch.len() < BATCH_MAX
            && let Ok(span) = queue.try_recv()
        {
            batch.push(span);
        }
        let count = batch.len() as u64;
        match exporter.export(batch).await {
            Ok(()) => {
                counts.sent.inc_by(count);
                if std::mem::take(&mut is_away) {
                    tracing::info!("the collector of traces is there again");
                }
            }
            Err(error) => {
                counts.lost.inc_by(count);
                if !std::mem::replace(&mut is_away, true) {
                    tracing::warn!(%error, "the collector of traces does not answer; spans are lost");
                }
            }
        }
    }
}

/// Around each execution of a worker inside the server.
impl Middleware for Traces {
    fn around(&self, context: Context, next: Next) -> BoxFuture<Result<Outcome, Failure>> {
        if !self.is_on() {
            return next.run(context);
        }
        let running = Running {
            traces: self.clone(),
            context: context.clone(),
            began: SystemTime::now(),
            error: Some("it was dropped before its end".to_owned()),
        };
        Box::pin(async move {
            let ended = next.run(context).await;
            running.ended(ended.as_ref().err().map(|failure| failure.code.clone()));
            ended
        })
    }
}

/// Told when it is dropped, because an execution can be.
struct Running {
    traces: Traces,
    context: Context,
    began: SystemTime,
    error: Option<String>,
}

impl Running {
    fn ended(mut self, error: Option<String>) {
        self.error = error;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (context, error) = (&self.context, self.error.take());
        self.traces.executed(context.job(), context.worker().as_str(), self.began, error);
    }
}
