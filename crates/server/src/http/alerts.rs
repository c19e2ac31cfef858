//! Alerts: what somebody should look at, found by looking at the store now and then.
//!
//! Each says what it saw, what it compares it with and what to do. One that no longer holds is gone.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::Serialize;
use windlass::{BoxFuture, Engine};
use windlass_kernel::{State, TenantId, Timestamp};
use windlass_store::{Error, read::Scope};

use super::{
    app::App,
    counts::Counts,
    document::List,
    figures::Figures,
    problem::Problem,
    route::{Answer, Call},
};

/// From where on something is worth an alert.
#[derive(Clone, Debug)]
pub(crate) struct Thresholds {
    /// How often to look.
    pub(crate) look_every: Duration,
    /// The share of jobs that are not at an end and wait for a retry.
    pub(crate) retrying_share: f64,
    /// Of how few jobs a share says nothing.
    pub(crate) retrying_jobs_min: u64,
    /// New dead letters of one tenant in a minute.
    pub(crate) dlq_per_minute: u64,
    /// Refused moves in a minute.
    pub(crate) invalid_transitions: u64,
    /// How long a job may be ready without being started.
    pub(crate) queue_age: Duration,
    /// Jobs that lost their worker, in a minute.
    pub(crate) interruptions_per_minute: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            look_every: Duration::from_secs(5),
            retrying_share: 0.2,
            retrying_jobs_min: 20,
            dlq_per_minute: 10,
            invalid_transitions: 5,
            queue_age: Duration::from_secs(300),
            interruptions_per_minute: 20,
        }
    }
}

/// Something that somebody should look at.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Alert {
    /// What sort it is.
    pub(crate) name: &'static str,
    /// `P1` wakes people up, `P2` waits for the morning.
    pub(crate) severity: &'static str,
    /// The tenant, if it is about one.
    pub(crate) tenant: Option<String>,
    /// The queue, if it is about one.
    pub(crate) queue: Option<String>,
    /// What was seen.
    pub(crate) value: f64,
    /// What it is compared with.
    pub(crate) threshold: f64,
    /// What it means, in a sentence.
    pub(crate) summary: String,
    /// What to do.
    pub(crate) remedy: &'static str,
    /// Since when it holds.
    #[schemars(with = "String")]
    pub(crate) since: Timestamp,
}

/// Tells others of an alert: whether it begins, and which.
pub(crate) type Tell = Box<dyn Fn(bool, Alert) -> BoxFuture<()> + Send + Sync>;

/// The alerts that hold now.
#[derive(Default)]
pub(crate) struct Alerts {
    now: Mutex<Vec<Alert>>,
    tell: OnceLock<Tell>,
}

/// What happened in the last minute.
#[derive(Debug, Default)]
struct Minute {
    times: VecDeque<Instant>,
}

impl Minute {
    const LENGTH: Duration = Duration::from_secs(60);

    fn add(&mut self, at: Instant) {
        self.times.push_back(at);
    }

    fn count(&mut self, now: Instant) -> u64 {
        while self.times.front().is_some_and(|at| now.duration_since(*at) > Self::LENGTH) {
            self.times.pop_front();
        }
        self.times.len() as u64
    }
}

/// What has been seen so far.
#[derive(Default)]
struct Seen {
    upto: Option<u64>,
    letters: BTreeMap<TenantId, Minute>,
    interruptions: Minute,
    refusals: Minute,
    refusals_before: u64,
}

impl Alerts {
    /// Those that hold now.
    pub(crate) fn now(&self) -> Vec<Alert> {
        self.now.lock().expect("nobody panics with it").clone()
    }

    /// Looks again and again, until it is dropped.
    pub(crate) async fn run(self: Arc<Self>, app: Arc<App>) {
        let mut seen = Seen::default();
        loop {
            // They may be others the next time.
            let limits = app.limits.now();
            let thresholds = &limits.alerts;
            let found = look(&app.engine, &app.figures, &app.counts, thresholds, &mut seen).await;
            for (begins, alert) in self.replace(found, app.engine.now()) {
                if let Some(tell) = self.tell.get() {
                    tell(begins, alert).await;
                }
            }
            tokio::time::sleep(thresholds.look_every).await;
        }
    }

    /// Whom to tell when an alert begins or ends.
    pub(crate) fn tell_to(&self, tell: Tell) {
        let _ = self.tell.set(tell);
    }

    /// What was there already keeps its time. It gives back what begins and what ends.
    fn replace(&self, mut found: Vec<Alert>, now: Timestamp) -> Vec<(bool, Alert)> {
        let mut all = self.now.lock().expect("nobody panics with it");
        let mut news = Vec::new();
        for alert in &mut found {
            match all.iter().find(|old| old.is_same(alert)) {
                Some(old) => alert.since = old.since,
                None => {
                    alert.since = now;
                    tracing::warn!(alert = alert.name, summary = alert.summary, "alert");
                    news.push((true, alert.clone()));
                }
            }
        }
        let ended = all.iter().filter(|old| !found.iter().any(|alert| alert.is_same(old)));
        news.extend(ended.map(|old| (false, old.clone())));
        *all = found;
        news
    }
}

impl Alert {
    /// Is it about the same thing?
    fn is_same(&self, other: &Alert) -> bool {
        let key = |alert: &Alert| (alert.name, alert.tenant.clone(), alert.queue.clone());
        key(self) == key(other)
    }
}

async fn look(
    engine: &Engine,
    figures: &Figures,
    counts: &Counts,
    thresholds: &Thresholds,
    seen: &mut Seen,
) -> Vec<Alert> {
    let mut found = Vec::new();
    refusals(figures, thresholds, seen, &mut found);
    if let Err(error) = ask(engine, counts, thresholds, seen, &mut found).await {
        found.push(Alert {
            severity: "P1",
            remedy: "Look at the database and at the disk. What was acknowledged is kept; work goes on when it is back.",
            ..alert("store_unavailable", 1.0, 0.0, format!("the store does not answer: {error}"))
        });
    }
    found
}

fn refusals(figures: &Figures, thresholds: &Thresholds, seen: &mut Seen, found: &mut Vec<Alert>) {
    let now = Instant::now();
    let refused = figures.invalid_transitions();
    // More than this says nothing new, and would only take memory.
    let more = (refused - seen.refusals_before).min(thresholds.invalid_transitions.max(1) * 10);
    (0..more).for_each(|_| seen.refusals.add(now));
    seen.refusals_before = refused;
    let count = seen.refusals.count(now);
    if count >= thresholds.invalid_transitions {
        found.push(Alert {
            severity: "P1",
            remedy: "Somebody acts on jobs as if they were in another state. The log has the calls; look at the one that repeats.",
            ..alert(
                "invalid_transitions",
                count as f64,
                thresholds.invalid_transitions as f64,
                format!("{count} illegal moves were refused in the last minute"),
            )
        });
    }
}

async fn ask(
    engine: &Engine,
    counts: &Counts,
    thresholds: &Thresholds,
    seen: &mut Seen,
    found: &mut Vec<Alert>,
) -> Result<(), Error> {
    let store = engine.store();
    tokio::time::timeout(Duration::from_secs(2), store.health()).await.unwrap_or_else(|_| {
        Err(Error::Unavailable("it did not answer within two seconds".into()))
    })?;
    follow(engine, seen).await?;
    let now = Instant::now();
    let counts = counts.read(engine, &Scope::Every).await?.rows;
    let is_open = |state: &str| State::parse(state).is_some_and(|state| !state.is_end());
    let open: u64 = counts.iter().filter(|(_, state, _)| is_open(state)).map(|row| row.2).sum();
    let retrying = |row: &&(String, String, u64)| row.1 == State::RetryScheduled.as_str();
    let retrying: u64 = counts.iter().filter(retrying).map(|row| row.2).sum();
    let share = retrying as f64 / open.max(1) as f64;
    if open >= thresholds.retrying_jobs_min && share > thresholds.retrying_share {
        found.push(Alert {
            remedy: "Look at the codes of their failures: GET /api/v1/jobs?state=retry_scheduled. A breaker stops the waste while a dependency is away.",
            ..alert(
                "retrying_share",
                share,
                thresholds.retrying_share,
                format!("{retrying} of {open} jobs that are not at an end wait for a retry"),
            )
        });
    }
    for (tenant, minute) in &mut seen.letters {
        let count = minute.count(now);
        if count > thresholds.dlq_per_minute {
            found.push(Alert {
                tenant: Some(tenant.to_string()),
                remedy: "GET /api/v1/dlq/groups shows the causes. Mend the handler, then requeue them together.",
                ..alert(
                    "dead_letters",
                    count as f64,
                    thresholds.dlq_per_minute as f64,
                    format!("tenant {tenant} got {count} dead letters in the last minute"),
                )
            });
        }
    }
    let interruptions = seen.interruptions.count(now);
    if interruptions > thresholds.interruptions_per_minute {
        found.push(Alert {
            remedy: "Workers die or freeze. Look at their memory and at their logs; GET /api/v1/workers shows who is left.",
            ..alert(
                "lease_churn",
                interruptions as f64,
                thresholds.interruptions_per_minute as f64,
                format!("{interruptions} jobs lost their worker in the last minute"),
            )
        });
    }
    for oldest in store.oldest_ready(&Scope::Every).await? {
        let age = engine.now().since(oldest.since);
        if age > thresholds.queue_age {
            found.push(Alert {
                queue: Some(oldest.queue.to_string()),
                remedy: "GET /api/v1/jobs/{id}/why says what a job waits for: a worker, a limit, a pause.",
                ..alert(
                    "queue_age",
                    age.as_secs_f64(),
                    thresholds.queue_age.as_secs_f64(),
                    format!("a job of queue {} has been ready for {} s", oldest.queue, age.as_secs()),
                )
            });
        }
    }
    Ok(())
}

/// Reads what has happened since the last look. What happened before the first one is not counted.
async fn follow(engine: &Engine, seen: &mut Seen) -> Result<(), Error> {
    let store = engine.store();
    let mut upto = match seen.upto {
        Some(upto) => upto,
        None => *seen.upto.insert(store.feed_end().await?),
    };
    loop {
        let feed = match store.feed(&Scope::Every, upto, 1_000).await {
            Err(Error::FeedGone { from }) => {
                upto = from.saturating_sub(1);
                continue;
            }
            other => other?,
        };
        let now = Instant::now();
        for told in &feed.events {
            let Some(event) = told.event() else { continue };
            match event.to {
                State::DlqPending => seen.letters.entry(told.tenant.clone()).or_default().add(now),
                State::Interrupted if event.is_move() => seen.interruptions.add(now),
                _ => {}
            }
        }
        if feed.upto <= upto {
            seen.upto = Some(upto);
            return Ok(());
        }
        upto = feed.upto;
    }
}

fn alert(name: &'static str, value: f64, threshold: f64, summary: String) -> Alert {
    Alert {
        name,
        severity: "P2",
        tenant: None,
        queue: None,
        value,
        threshold,
        summary,
        remedy: "",
        since: Timestamp::MIN,
    }
}

/// `GET /api/v1/alerts`
pub(crate) async fn list(call: Call) -> Result<Answer, Problem> {
    Ok(Answer::ok(&List { items: seen_by(&call), next: None }))
}

/// Those that the caller may see.
pub(crate) fn seen_by(call: &Call) -> Vec<Alert> {
    let is_mine = |alert: &Alert| match (call.scope(), &alert.tenant) {
        (Scope::Every, _) => true,
        (Scope::Of(own), Some(tenant)) => own.as_str() == tenant,
        // What is about the whole store is for those who look after it.
        (Scope::Of(own), None) => own.as_str() == Engine::TENANT_DEFAULT,
    };
    call.app.alerts.now().into_iter().filter(is_mine).collect()
}
