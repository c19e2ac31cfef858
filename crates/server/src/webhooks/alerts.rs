//! Alerts that are told: when one begins to hold, and when it no longer does.
//!
//! They go the way of all deliveries. If the store is away there are no jobs, and that is what somebody has to hear: then
//! the call is made at once, and made again while it fails.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::http::HeaderMap;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use windlass::{Engine, Error};

use super::{Deliveries, Delivery};
use crate::{
    config::Webhook,
    executors::stopped,
    http::{Alert, Alerts, App},
};

/// Tells a webhook of alerts.
pub(super) struct Teller {
    engine: Engine,
    alerts: Arc<Alerts>,
    webhook: Webhook,
    deliveries: Arc<Deliveries>,
    /// Those that hold, as far as they were told, by their ids.
    told: BTreeMap<String, Alert>,
}

/// What is sent.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    /// Does it hold?
    firing: bool,
    payload: &'a Alert,
}

impl Teller {
    const LOOK: Duration = Duration::from_secs(1);
    /// How long the store may take to accept a delivery.
    const STORE_MAX: Duration = Duration::from_secs(2);

    pub(super) fn new(
        app: &App,
        webhook: Webhook,
        deliveries: Arc<Deliveries>,
    ) -> Result<Self, Error> {
        let engine = app.engine.tenant(webhook.tenant.as_str())?.acting_as("alerts")?;
        let (alerts, told) = (app.alerts.clone(), BTreeMap::new());
        Ok(Self { engine, alerts, webhook, deliveries, told })
    }

    pub(super) async fn run(mut self, mut stopping: watch::Receiver<bool>) {
        tokio::select! {
            biased;
            () = stopped(&mut stopping) => {}
            () = self.look_again_and_again() => {}
        }
    }

    async fn look_again_and_again(&mut self) {
        loop {
            let name = &self.webhook.name;
            let now = self.alerts.now().into_iter().map(|alert| (id(name, &alert), alert));
            self.tell_changes(now.collect()).await;
            sleep(Self::LOOK).await;
        }
    }

    /// What could not be told is told at the next look, if it is still so.
    async fn tell_changes(&mut self, now: BTreeMap<String, Alert>) {
        let begun = now.iter().filter(|(id, _)| !self.told.contains_key(*id));
        for (id, alert) in begun.map(|(id, alert)| (id.clone(), alert.clone())).collect::<Vec<_>>()
        {
            if self.tell(&id, true, &alert).await {
                self.told.insert(id, alert);
            }
        }
        let over = self.told.iter().filter(|(id, _)| !now.contains_key(*id));
        for (id, alert) in over.map(|(id, alert)| (id.clone(), alert.clone())).collect::<Vec<_>>() {
            if self.tell(&format!("{id}:over"), false, &alert).await {
                self.told.remove(&id);
            }
        }
    }

    async fn tell(&self, id: &str, firing: bool, alert: &Alert) -> bool {
        let delivery = Delivery {
            webhook: self.webhook.name.clone(),
            id: id.to_owned(),
            event: document(firing, alert),
        };
        let enqueued = self.engine.enqueue(delivery.request(&self.webhook));
        match timeout(Self::STORE_MAX, enqueued).await {
            // It was told before, or another node has.
            Ok(Ok(_) | Err(Error::Refused(_))) => return true,
            Ok(Err(error)) => tracing::warn!(%error, "an alert is told without the store"),
            Err(_) => tracing::warn!("the store is slow: an alert is told without it"),
        }
        let (tenant, now) = (&self.webhook.tenant, self.engine.now());
        let sent = self.deliveries.send(&delivery, tenant, HeaderMap::new(), now).await;
        if let Err(error) = &sent {
            tracing::error!(%error, alert = alert.name, "an alert could not be told");
        }
        sent.is_ok()
    }
}

fn document(firing: bool, alert: &Alert) -> Box<RawValue> {
    let document = Document { kind: "alert", firing, payload: alert };
    to_raw_value(&document).expect("a document is plain data")
}

/// The same as long as the alert holds.
fn id(webhook: &str, alert: &Alert) -> String {
    // Names of tenants and queues may be long, or hold what a header may not.
    let about = format!("{:?} {:?}", alert.tenant, alert.queue);
    let digest = <sha2::Sha256 as sha2::Digest>::digest(about.as_bytes());
    let about = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    format!("{webhook}:{}:{about:08x}:{}", alert.name, alert.since.as_micros())
}
