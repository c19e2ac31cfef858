//! Alerts: what somebody should look at, found by looking at the store now and then.
//!
//! Each says what it saw, what it compares it with and what to do. One that no longer holds is gone.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock},
    time::{Duration, Instant},
};

use schemars::JsonSchema;
use serde::Serialize;
use windlass::wire::List;
use windlass::{BoxFuture, Engine, Health};
use windlass_kernel::{MarkName, State, TenantId, Timestamp};
use windlass_store::{
    ClockStanding, Error, JUMP_MAX, Write,
    read::{FeedEvent, Scope},
};

use crate::http::{
    api::late_queues::queue_age,
    core::{
        app::App,
        counts::Counts,
        figures::Figures,
        problem::Problem,
        route::{Answer, Call},
        totals::Skip,
    },
};

/// From where on something is worth an alert.
#[derive(Clone, Debug)]
pub(crate) struct Thresholds {
    /// How often to look.
    pub(crate) look_every: Duration,
    /// The share of jobs that are not at an end and wait for a retry.
    pub(crate) retrying_share: f64,
    /// Of fewer open jobs the share says nothing.
    pub(crate) retrying_jobs_min: u64,
    /// New dead letters of one tenant in a minute.
    pub(crate) dlq_per_minute: u64,
    /// Refused moves in a minute.
    pub(crate) invalid_transitions: u64,
    /// How long a job may be ready without being started.
    pub(crate) queue_age: Duration,
    /// Jobs that lost their worker, in a minute.
    pub(crate) interruptions_per_minute: u64,
    /// Slots that the schedules of one tenant missed, in a minute.
    pub(crate) skipped_slots: u64,
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
            skipped_slots: 1,
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
    /// Replaced as a whole: whoever answers a call takes the lock for no longer than a copy of the pointer takes.
    now: Mutex<Arc<Vec<Alert>>>,
    tell: OnceLock<Tell>,
}

/// What an alert is about: its sort, its tenant and its queue.
type Key = (&'static str, Option<String>, Option<String>);

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
    /// What happened before is not counted.
    not_before: Option<Timestamp>,
    letters: BTreeMap<TenantId, Minute>,
    skipped_slots: BTreeMap<TenantId, Minute>,
    interruptions: Minute,
    refusals: Minute,
    refusals_before: u64,
}

impl Alerts {
    /// Those that hold now.
    pub(crate) fn now(&self) -> Arc<Vec<Alert>> {
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
        let before = self.now();
        let mut known: HashMap<Key, &Alert> = before.iter().map(|it| (it.key(), it)).collect();
        let mut news = Vec::new();
        for alert in &mut found {
            match known.remove(&alert.key()) {
                Some(old) => alert.since = old.since,
                None => {
                    alert.since = now;
                    tracing::warn!(alert = alert.name, summary = alert.summary, "alert");
                    news.push((true, alert.clone()));
                }
            }
        }
        let ended = before.iter().filter(|old| known.contains_key(&old.key()));
        news.extend(ended.map(|old| (false, old.clone())));
        *self.now.lock().expect("nobody panics with it") = Arc::new(found);
        news
    }
}

impl Alert {
    /// What it is about. Two with one key are the same alert at two times.
    fn key(&self) -> Key {
        (self.name, self.tenant.clone(), self.queue.clone())
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
    unwell(engine, &mut found).await;
    found.extend(engine.own_store().ok().and_then(|store| clock(store.clock())));
    if let Err(error) = health(engine).await {
        found.push(Alert {
            severity: "P1",
            remedy: "Look at the database and at the disk. What was acknowledged is kept; work goes on when it is back.",
            ..alert("store_unavailable", 1.0, 0.0, format!("the store does not answer: {error}"))
        });
    } else if let Err(error) = ask(engine, figures, counts, thresholds, seen, &mut found).await {
        // It answers, and one of the questions took too long, or failed.
        found.push(Alert {
            remedy: "The store answers and jobs run. Look at what keeps it busy; other alerts may be missing meanwhile.",
            ..alert("alerts_incomplete", 1.0, 0.0, format!("not all alerts could be looked at: {error}"))
        });
    }
    found
}

/// The clock that the store follows, if it is off.
fn clock(standing: ClockStanding) -> Option<Alert> {
    let seconds = |time: Duration| Duration::from_secs(time.as_secs());
    let alert = match standing {
        ClockStanding::Agrees => return None,
        ClockStanding::WentBack { by } => Alert {
            remedy: "Let the machine, or the database's, follow a time server. Nothing stops: the store's time goes on, a tenth slower, until both meet. windlass doctor says when.",
            ..alert(
                "clock_went_back",
                by.as_secs_f64(),
                1.0,
                format!("the clock is {:?} behind the store's time", seconds(by)),
            )
        },
        ClockStanding::JumpedAhead { by } => Alert {
            severity: "P1",
            remedy: "If the clock is right now, windlass doctor --mend clock makes the store follow it, and so does a restart. If it is not, set it right: nothing else is to be done.",
            ..alert(
                "clock_jumped_ahead",
                by.as_secs_f64(),
                JUMP_MAX.as_secs_f64(),
                format!(
                    "the clock is {:?} ahead of the store's time, which does not follow it",
                    seconds(by)
                ),
            )
        },
    };
    Some(alert)
}

/// What the engine knows of itself: it cannot write, or its timers cannot look.
async fn unwell(engine: &Engine, found: &mut Vec<Alert>) {
    if engine.health().writes.is_some() {
        // Nobody else may be writing, since the server says that it cannot take work: so this tells when it can again.
        let name = MarkName::new("windlass.probe").expect("it is a name");
        let number = engine.now().as_micros().unsigned_abs();
        let _ = engine.submit(Write::Mark { name, number }).await;
    }
    let Health { writes, timers, .. } = engine.health();
    if let Some(error) = writes {
        let is_full = matches!(*error, Error::DiskFull(_));
        let name = if is_full { "disk_full" } else { "store_damaged" };
        found.push(Alert {
            severity: "P1",
            remedy: error.info().remedy,
            ..alert(name, 1.0, 0.0, format!("nothing can be written: {error}"))
        });
    }
    if let Some(error) = timers {
        found.push(Alert {
            severity: "P1",
            remedy: "Nothing comes due: no retry, lease, time-out or schedule. It is tried again each second; mend what the message names, or restore a backup.",
            ..alert("timers_stopped", 1.0, 0.0, format!("timers cannot look: {error}"))
        });
    }
}

/// Does the store answer?
async fn health(engine: &Engine) -> Result<(), Error> {
    tokio::time::timeout(Duration::from_secs(2), engine.check())
        .await
        .unwrap_or_else(|_| Err(Error::Unavailable("it did not answer within two seconds".into())))
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
    figures: &Figures,
    counts: &Counts,
    thresholds: &Thresholds,
    seen: &mut Seen,
    found: &mut Vec<Alert>,
) -> Result<(), Error> {
    follow(engine, figures, seen).await?;
    let now = Instant::now();
    let counted = counts.read(engine, &Scope::Every).await?;
    let counts = counted.rows;
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
    for (tenant, minute) in &mut seen.skipped_slots {
        let count = minute.count(now);
        if count >= thresholds.skipped_slots {
            found.push(Alert {
                tenant: Some(tenant.to_string()),
                remedy: "GET /api/v1/schedules/{name}/history says which slots and why. catch_up says what becomes of them; a backfill makes up for them.",
                ..alert(
                    "skipped_slots",
                    count as f64,
                    thresholds.skipped_slots as f64,
                    format!("schedules of tenant {tenant} missed {count} slots, seen in the last minute"),
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
    found.extend(queue_age(&counted.oldest, thresholds.queue_age, engine.now()));
    Ok(())
}

/// Events that the first look reads again, for those of the minute before it.
const READ_AGAIN: u64 = 10_000;

/// Reads what has happened since the last look. The first one goes back by a minute: what a server does as soon as it is
/// back, such as skipping slots, happens before it looks.
async fn follow(engine: &Engine, figures: &Figures, seen: &mut Seen) -> Result<(), Error> {
    let store = engine.own_store()?;
    let mut upto = match seen.upto {
        Some(upto) => upto,
        None => {
            seen.not_before = Some(engine.now().minus(Minute::LENGTH));
            *seen.upto.insert(store.feed_end().await?.saturating_sub(READ_AGAIN))
        }
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
        let not_before = seen.not_before;
        for told in &feed.events {
            if not_before.is_some_and(|least| told.at < least) {
                continue;
            }
            let Some(event) = told.event() else {
                note(told, figures, seen, now);
                continue;
            };
            match event.to {
                State::DlqPending => {
                    figures.totals.letter(&told.tenant);
                    seen.letters.entry(told.tenant.clone()).or_default().add(now);
                }
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

/// Counts slots that were skipped. What a person asked for is no alert.
fn note(told: &FeedEvent, figures: &Figures, seen: &mut Seen, now: Instant) {
    let Some(skip) = Skip::of_note(&told.line) else { return };
    figures.totals.skipped(&told.tenant, &skip);
    if !skip.is_asked_for() {
        let minute = seen.skipped_slots.entry(told.tenant.clone()).or_default();
        (0..skip.count.min(SLOTS_COUNTED_MAX)).for_each(|_| minute.add(now));
    }
}

/// More slots of one note than this say nothing new, and would only take memory.
const SLOTS_COUNTED_MAX: u64 = 1_000;

pub(crate) fn alert(name: &'static str, value: f64, threshold: f64, summary: String) -> Alert {
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

/// Those that the caller may see: a tenant its own, and whoever looks after the whole server all of them.
pub(crate) fn seen_by(call: &Call) -> Vec<Alert> {
    let all = call.app.alerts.now();
    let Some(own) = call.scope().tenant().filter(|_| !call.sees_the_whole()) else {
        return all.to_vec();
    };
    let is_mine = |alert: &&Alert| alert.tenant.as_deref() == Some(own.as_str());
    all.iter().filter(is_mine).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(seconds * 1_000_000)
    }

    fn found(count: u32) -> Vec<Alert> {
        let about = |number| Alert {
            queue: Some(format!("q{number:05}")),
            ..alert("queue_age", 1.0, 0.0, String::new())
        };
        (0..count).map(about).collect()
    }

    #[test]
    fn what_goes_on_keeps_its_time_and_what_ended_is_told() {
        let alerts = Alerts::default();
        let news = alerts.replace(found(3), at(1));
        assert!(news.iter().all(|(begins, _)| *begins) && news.len() == 3);
        let news = alerts.replace(found(2), at(2));
        let ended: Vec<_> = news.iter().map(|(begins, it)| (*begins, it.queue.clone())).collect();
        assert_eq!(ended, [(false, Some("q00002".to_owned()))]);
        assert!(alerts.now().iter().all(|alert| alert.since == at(1)));
    }
}
