//! Webhooks: others are told what happens, by a signed call for each event.
//!
//! A follower reads the feed and enqueues one job for each event; a worker of the server delivers them. So a delivery is
//! a job like any other: it is durable, it is tried again, it ends in the dead letters, and people can see it.
//!
//! Always true here: an event that fits is delivered at least once, under the same `webhook-id` each time. How far a
//! follower has come is written after its jobs are, and asking for a job twice gives the same one. Deliveries tell
//! nothing of themselves.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::http::{HeaderMap, HeaderValue, Method, header};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;
use tokio::{sync::watch, task::JoinHandle};
use windlass::{Context, Engine, Error, HandlerResult, JobRequest, Outcome, TraceContext};
use windlass_kernel::{
    Failure, JobId, MarkName, Spec, Timestamp,
    failure::{HTTP_REJECTED, HTTP_UNAVAILABLE, WEBHOOK_UNKNOWN},
};
use windlass_store::{
    self as store, Write,
    read::{FeedEvent, Scope},
};

use crate::{
    config::{Config, EventFilter, Secret, Webhook},
    executors::{
        client::{Answered, Outgoing, Outward, host, identity},
        guard::Guard,
        look_after, retry_after, stopped,
    },
    http::{Alert, App, tell},
};

/// The kind of deliveries.
pub(crate) const KIND: &str = "windlass.webhook";
/// Where they wait.
pub(crate) const QUEUE: &str = "windlass.webhooks";

/// The webhooks of a server that runs.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    tasks: Vec<JoinHandle<()>>,
}

impl Webhooks {
    /// Starts a follower for each webhook, and the worker that delivers. They end by themselves when the server stops.
    /// What happens from then on is told.
    pub(crate) async fn start(app: &App, config: &Config) -> Result<Self, Error> {
        if config.webhooks.is_empty() {
            return Ok(Self::default());
        }
        let deliveries = Arc::new(Deliveries::new(config).map_err(Error::Worker)?);
        if let Some(name) = &config.alerts.webhook {
            let teller = Arc::new(Teller::new(&app.engine, deliveries.clone(), name)?);
            app.alerts.tell_to(Box::new(move |begins, alert| {
                let teller = teller.clone();
                Box::pin(async move { teller.tell(begins, &alert).await })
            }));
        }
        let worker =
            app.engine.worker().name("windlass.webhooks").queues([QUEUE]).state(deliveries);
        let worker = worker.concurrency(16).grace(config.server.settings.grace);
        let worker = worker.handle_kind(KIND, deliver).start().await?;
        let mut tasks = vec![look_after("webhooks", worker, app.stopping.clone())];
        for webhook in config.webhooks.iter().filter(|webhook| webhook.feed) {
            let follower = Follower::new(&app.engine, webhook.clone())?;
            let after = follower.begin().await?;
            tasks.push(tokio::spawn(follower.run(after, app.tail.follow(), app.stopping.clone())));
        }
        Ok(Self { tasks })
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(self) {
        for task in self.tasks {
            let _ = task.await;
        }
    }
}

/// The payload of a delivery.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Delivery {
    webhook: String,
    /// The number of the event in the store.
    number: u64,
    /// The event, as it is sent.
    event: Box<RawValue>,
}

/// Reads the feed for one webhook.
struct Follower {
    engine: Engine,
    scope: Scope,
    webhook: Webhook,
    mark: MarkName,
    /// What is known of the jobs that events speak of.
    specs: HashMap<JobId, Option<Arc<Spec>>>,
}

impl Follower {
    /// How much of the feed is read at once.
    const ROWS: u32 = 500;
    /// The most jobs that are remembered.
    const SPECS_MAX: usize = 10_000;
    /// How long it waits if the store does not answer, and how long it is silent at the most.
    const AGAIN: Duration = Duration::from_secs(1);
    const LOOK: Duration = Duration::from_secs(5);
    /// The longest wait between two tries of a delivery.
    const BACKOFF_MAX: Duration = Duration::from_secs(60 * 60);

    fn new(engine: &Engine, webhook: Webhook) -> Result<Self, Error> {
        let mark = MarkName::new(format!("webhook:{}:{}", webhook.tenant, webhook.name))?;
        let engine = engine.tenant(webhook.tenant.as_str())?.acting_as("webhooks")?;
        let scope = Scope::Of(webhook.tenant.clone());
        Ok(Self { engine, scope, webhook, mark, specs: HashMap::new() })
    }

    async fn run(
        mut self,
        after: u64,
        mut tail: watch::Receiver<u64>,
        mut stopping: watch::Receiver<bool>,
    ) {
        tokio::select! {
            biased;
            () = stopped(&mut stopping) => {}
            () = self.follow(after, &mut tail) => {}
        }
    }

    async fn follow(&mut self, mut after: u64, tail: &mut watch::Receiver<u64>) {
        loop {
            tail.mark_unchanged();
            match self.step(after).await {
                Ok(upto) if upto > after => after = upto,
                Ok(_) => {
                    let _ = tokio::time::timeout(Self::LOOK, tail.changed()).await;
                }
                Err(error) => {
                    let webhook = &self.webhook.name;
                    if let Error::Store(error) = &error
                        && let store::Error::FeedGone { from } = **error
                    {
                        tracing::error!(webhook, after, from, "events are gone and were not told");
                        after = from.saturating_sub(1).max(after);
                        continue;
                    }
                    tracing::warn!(webhook, %error, "a webhook cannot go on; it is tried again");
                    tokio::time::sleep(Self::AGAIN).await;
                }
            }
        }
    }

    /// Where it goes on. A new webhook begins with what happens from now on: that is written at once, so that nothing
    /// is passed over if the server dies before the first event.
    async fn begin(&self) -> Result<u64, Error> {
        if let Some(number) = self.engine.own_store()?.mark(&self.mark).await? {
            return Ok(number);
        }
        let end = self.engine.own_store()?.feed_end().await?;
        self.save(end).await?;
        Ok(end)
    }

    /// Enqueues deliveries for a part of the feed, and says how far it went.
    async fn step(&mut self, after: u64) -> Result<u64, Error> {
        let feed = self.engine.own_store()?.feed(&self.scope, after, Self::ROWS).await?;
        let mut requests = Vec::new();
        for told in feed.events {
            requests.extend(self.request(told).await?);
        }
        let told_something = !requests.is_empty();
        for enqueued in self.engine.enqueue_all(requests).await {
            match enqueued {
                // It was asked for before, perhaps when the config had other words for it.
                Ok(_) => {}
                Err(Error::Refused(refusal)) => {
                    let webhook = &self.webhook.name;
                    tracing::error!(webhook, %refusal, "an event cannot be delivered");
                }
                Err(error) => return Err(error),
            }
        }
        // What was passed over need not be remembered each time: to pass over it again is cheap.
        if told_something || feed.upto >= after + u64::from(Self::ROWS) {
            self.save(feed.upto).await?;
        }
        Ok(feed.upto)
    }

    async fn save(&self, number: u64) -> Result<(), Error> {
        self.engine.submit(Write::Mark { name: self.mark.clone(), number }).await.map(drop)
    }

    /// The delivery of an event, if it fits.
    async fn request(&mut self, told: FeedEvent) -> Result<Option<JobRequest>, Error> {
        let number = told.number;
        let spec = match told.event() {
            Some(event) => match self.spec(event.job_id).await? {
                Some(spec) if fits(&self.webhook.events, event.to, &spec) => {
                    Some((event.job_id, spec))
                }
                // A job that is forgotten may have been a delivery.
                Some(_) | None => return Ok(None),
            },
            None if self.webhook.events.is_empty() => None,
            None => return Ok(None),
        };
        let document = tell(&told, self.webhook.contract, spec.as_ref().map(|(_, spec)| &**spec));
        let request = document.map(|event| self.delivery(number, event));
        Ok(match (request, spec) {
            (Some(request), Some((job_id, spec))) => {
                let span = TraceContext::of_enqueue(&spec.trace_id, job_id);
                Some(request.trace(spec.trace_id.as_str()).from_span(span))
            }
            (request, _) => request,
        })
    }

    fn delivery(&self, number: u64, event: Box<RawValue>) -> JobRequest {
        let webhook = &self.webhook;
        let key = format!("{}:{number}", webhook.name);
        let payload = Delivery { webhook: webhook.name.clone(), number, event };
        request(webhook, &payload, &key)
    }

    async fn spec(&mut self, id: JobId) -> Result<Option<Arc<Spec>>, Error> {
        if let Some(spec) = self.specs.get(&id) {
            return Ok(spec.clone());
        }
        let job = self.engine.store().job(&self.scope, id).await?;
        let spec = job.map(|job| job.spec.clone());
        if self.specs.len() >= Self::SPECS_MAX {
            self.specs.clear();
        }
        self.specs.insert(id, spec.clone());
        Ok(spec)
    }
}

/// Is it an event that the webhook tells?
fn fits(filter: &EventFilter, state: windlass::State, spec: &Spec) -> bool {
    spec.kind.as_str() != KIND
        && (filter.states.is_empty() || filter.states.contains(&state))
        && (filter.kinds.is_empty() || filter.kinds.contains(&spec.kind))
        && (filter.queues.is_empty() || filter.queues.contains(&spec.queue))
}

/// What all deliveries share.
#[derive(Debug)]
struct Deliveries {
    webhooks: BTreeMap<String, (Webhook, Vec<Secret>)>,
    outward: Outward,
}

impl Deliveries {
    fn new(config: &Config) -> Result<Self, String> {
        let mut webhooks = BTreeMap::new();
        for webhook in &config.webhooks {
            let secrets = webhook.secrets()?;
            webhooks.insert(webhook.name.clone(), (webhook.clone(), secrets));
        }
        let outward = Outward::new(Guard::new(&config.executors.http.allow), false)?;
        Ok(Self { webhooks, outward })
    }
}

/// Runs a delivery.
async fn deliver(
    delivery: Delivery,
    context: Context,
    deliveries: Arc<Deliveries>,
) -> HandlerResult<Outcome> {
    let known = deliveries.webhooks.get(&delivery.webhook);
    // A job of one tenant cannot speak in the name of another.
    let known = known.filter(|(webhook, _)| webhook.tenant == *context.tenant());
    let Some((webhook, secrets)) = known else {
        let message = format!("there is no webhook {:?}", delivery.webhook);
        return Err(Failure::own(WEBHOOK_UNKNOWN, &message).into());
    };
    let mut headers = identity(&context);
    // What is the same delivery is said by its own id, which stays the same in all attempts.
    headers.remove("idempotency-key");
    let at = seconds(context.engine().now());
    let answered = deliveries.post(webhook, secrets, &delivery, at, headers).await?;
    let status = answered.status;
    let message = format!("{} answered {}", host(&webhook.url), status.as_u16());
    match status.as_u16() {
        200..=299 => Ok(Outcome::done(&serde_json::json!({ "status": status.as_u16() }))),
        // The receiver wants no more of it.
        410 => Err(Failure::own(HTTP_REJECTED, &message).into()),
        _ => {
            let failure = Failure::own(HTTP_UNAVAILABLE, &message);
            Err(retry_after(failure, &answered.headers).into())
        }
    }
}

impl Deliveries {
    /// Sends a delivery, signed with each secret.
    async fn post(
        &self,
        webhook: &Webhook,
        secrets: &[Secret],
        delivery: &Delivery,
        at: i64,
        mut headers: HeaderMap,
    ) -> HandlerResult<Answered> {
        let id = format!("{}:{}", delivery.webhook, delivery.number);
        let body = delivery.event.get();
        let signatures = secrets.iter().map(|secret| signature(secret, &id, at, body));
        let signatures = signatures.collect::<Vec<_>>().join(" ");
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("webhook-id", HeaderValue::from_str(&id)?);
        headers.insert("webhook-timestamp", HeaderValue::from(at));
        headers.insert("webhook-signature", HeaderValue::from_str(&signatures)?);
        let outgoing = Outgoing {
            method: Method::POST,
            url: webhook.url.clone(),
            headers: HeaderMap::new(),
            own_headers: headers,
            body: Bytes::from(body.to_owned()),
            timeout: webhook.timeout,
            bytes_max: 0,
        };
        Ok(self.outward.send(outgoing).await?)
    }
}

/// Tells a webhook of alerts: by a delivery like others, or, while the store is away, at once and without a net.
struct Teller {
    engine: Engine,
    deliveries: Arc<Deliveries>,
    name: String,
}

/// An alert as a webhook is told of it.
#[derive(Serialize)]
struct AlertEvent<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    payload: &'a Alert,
}

impl Teller {
    /// How long the store may take to accept the delivery.
    const STORE_MAX: Duration = Duration::from_secs(2);

    fn new(engine: &Engine, deliveries: Arc<Deliveries>, name: &str) -> Result<Self, Error> {
        let (webhook, _) = deliveries.webhooks.get(name).expect("the config was checked");
        let engine = engine.tenant(webhook.tenant.as_str())?.acting_as("alerts")?;
        Ok(Self { engine, name: name.to_owned(), deliveries })
    }

    async fn tell(&self, begins: bool, alert: &Alert) {
        let (webhook, secrets) = &self.deliveries.webhooks[&self.name];
        let kind = if begins { "alert.fired" } else { "alert.cleared" };
        let event = serde_json::value::to_raw_value(&AlertEvent { kind, payload: alert });
        let event = event.expect("an alert is plain data");
        // Events have small numbers: this is another one, and the same on no two nodes.
        let number = u64::try_from(self.engine.now().as_micros()).unwrap_or_default();
        let delivery = Delivery { webhook: self.name.clone(), number, event };
        let request = request(webhook, &delivery, &format!("{}:alert:{number}", self.name));
        let accepted = tokio::time::timeout(Self::STORE_MAX, self.engine.enqueue(request)).await;
        if matches!(accepted, Ok(Ok(_))) {
            return;
        }
        let at = seconds(self.engine.now());
        let sent = self.deliveries.post(webhook, secrets, &delivery, at, HeaderMap::new()).await;
        if let Err(error) = sent {
            tracing::error!(webhook = self.name, %error, "nobody could be told of an alert");
        }
    }
}

/// The job that delivers, under this key.
fn request(webhook: &Webhook, delivery: &Delivery, key: &str) -> JobRequest {
    JobRequest::of(KIND, delivery)
        .queue(QUEUE)
        .server_key(key)
        .max_retries(u32::try_from(webhook.max_retries).expect("it is bounded"))
        .backoff(webhook.backoff, Follower::BACKOFF_MAX.max(webhook.backoff))
        .timeout(webhook.timeout + Duration::from_secs(10))
}

fn seconds(at: Timestamp) -> i64 {
    at.as_micros() / 1_000_000
}

/// The signature of Standard Webhooks.
fn signature(secret: &Secret, id: &str, at: i64, body: &str) -> String {
    let mac = Hmac::<Sha256>::new_from_slice(secret.bytes());
    let mut mac = mac.expect("a key of any length will do");
    mac.update(format!("{id}.{at}.").as_bytes());
    mac.update(body.as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let signed = signature(&secret, id, 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn another_body_id_or_time_has_another_signature() {
        let secret = Secret::parse("a secret of some length").unwrap();
        let signed = signature(&secret, "a:1", 1, "{}");
        assert_ne!(signed, signature(&secret, "a:1", 1, "{ }"));
        assert_ne!(signed, signature(&secret, "a:2", 1, "{}"));
        assert_ne!(signed, signature(&secret, "a:1", 2, "{}"));
        let other = Secret::parse("another secret of some length").unwrap();
        assert_ne!(signed, signature(&other, "a:1", 1, "{}"));
    }
}
