//! Traces: calls, enqueues and executions as spans, told to a collector by OTLP.
//!
//! Off unless a collector is named, and then nothing is made or measured. A span that has ended goes into a queue with
//! a bound; nobody waits for the collector. While it is away spans are lost and counted, and it is said once.
//!
//! Enqueues and executions come from the engine ([`Tracer`]), which tells of every job that it makes and runs, whoever
//! asked for it. What workers elsewhere have run is told when they report it.

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
use windlass::{SpanOf, TraceContext, Tracer};
use windlass_kernel::Timestamp;

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
    /// What it comes from and does not belong to.
    pub(crate) links: Vec<TraceContext>,
    pub(crate) began: SystemTime,
    pub(crate) ended: SystemTime,
    pub(crate) attributes: Vec<KeyValue>,
    /// Why it did not go well.
    pub(crate) error: Option<String>,
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
        let links = others.into_iter().chain(span.links);
        let links = links.map(|other| Link::new(context_of(&other, true), Vec::new(), 0));
        let data = SpanData {
            span_context: context_of(&span.at, false),
            parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.span)),
            parent_span_is_remote: parent.is_some(),
            span_kind: span.kind,
            name: span.name.into(),
            start_time: span.began,
            end_time: span.ended.max(span.began),
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

    /// What an engine tells its spans to, if anybody listens.
    pub(crate) fn tracer(&self) -> Option<Tracer> {
        let traces = self.clone();
        self.is_on().then(|| Arc::new(move |span| traces.tell_of_job(span)) as Tracer)
    }

    /// A job was made, or has run, here or elsewhere.
    pub(crate) fn tell_of_job(&self, span: windlass::Span) {
        let (name, mut attributes) = (span.name(), attributes(&span));
        let kind = match span.of {
            SpanOf::Execution { attempt, worker } => {
                attributes.push(KeyValue::new("windlass.attempt", i64::from(attempt)));
                attributes.push(KeyValue::new("windlass.worker", worker.to_string()));
                SpanKind::Consumer
            }
            _ => SpanKind::Producer,
        };
        self.tell(Span {
            name,
            kind,
            at: span.at,
            parent: span.parent,
            links: span.links,
            began: system_time(span.began_at),
            ended: system_time(span.ended_at),
            attributes,
            error: span.error,
        });
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The words of OpenTelemetry for messages. Payloads are never among them.
fn attributes(span: &windlass::Span) -> Vec<KeyValue> {
    let operation = if span.of == SpanOf::Enqueue { "send" } else { "process" };
    vec![
        KeyValue::new("messaging.system", "windlass"),
        KeyValue::new("messaging.operation.type", operation),
        KeyValue::new("messaging.destination.name", span.queue.to_string()),
        KeyValue::new("messaging.message.id", span.job_id.to_string()),
        KeyValue::new("windlass.kind", span.kind.to_string()),
    ]
}

fn context_of(context: &TraceContext, is_remote: bool) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (OtelTraceId::from(context.trace), SpanId::from(context.span));
    SpanContext::new(trace, span, flags, is_remote, TraceState::default())
}

/// The time of a row.
fn system_time(at: Timestamp) -> SystemTime {
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
