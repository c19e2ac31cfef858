//! Figures of this process, as Prometheus reads them.

use std::{collections::BTreeMap, sync::atomic::AtomicU64, time::Duration};

use axum::http::StatusCode;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode_registry},
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};
use windlass::Engine;
use windlass_kernel::{Queue, Timestamp};
use windlass_store::{
    Error,
    read::{OldestReady, Scope},
};

use crate::http::{
    api::queues::is_worker_of,
    core::{counts::Counts, route::Route, totals::Totals},
};
use crate::traces::SpanCounts;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    path: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    method: &'static str,
    path: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    code: String,
}

/// What is counted.
pub(crate) struct Figures {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    seconds: Family<PathLabels, Histogram>,
    problems: Family<CodeLabels, Counter>,
    invalid: Counter,
    /// What is told by tenant.
    pub(crate) totals: Totals,
}

impl Figures {
    /// With what is counted elsewhere.
    pub(crate) fn new(spans: &SpanCounts) -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let (calls, problems) = (Family::default(), Family::default());
        let invalid = Counter::default();
        let seconds = Family::new_with_constructor(buckets as fn() -> Histogram);
        let help = "Calls that were answered";
        registry.register("http_requests", help, Family::clone(&calls));
        let help = "How long calls took, long polls included";
        registry.register_with_unit("http_request", help, Unit::Seconds, Family::clone(&seconds));
        let help = "Calls that were answered by a problem, by its code";
        registry.register("problems", help, Family::clone(&problems));
        let help = "Moves that a job's state does not have, and that were refused";
        registry.register("invalid_transitions", help, Counter::clone(&invalid));
        let help = "Spans that the collector of traces took";
        registry.register("spans_sent", help, Counter::clone(&spans.sent));
        let help = "Spans that are lost: the collector was away, or too many waited for it";
        registry.register("spans_lost", help, Counter::clone(&spans.lost));
        Self { registry, calls, seconds, problems, invalid, totals: Totals::default() }
    }
}

/// From half a millisecond to sixteen seconds.
fn buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.000_5, 2.0, 16))
}

impl Figures {
    /// A call was answered.
    pub(crate) fn call(&self, route: &Route, status: StatusCode, took: Duration) {
        let (method, path) = (route.method, route.path);
        self.calls.get_or_create(&CallLabels { method, path, status: status.as_u16() }).inc();
        self.seconds.get_or_create(&PathLabels { method, path }).observe(took.as_secs_f64());
    }

    /// A call, or one op of it, was answered by a problem.
    pub(crate) fn problem(&self, code: &str) {
        // One code of ours, and two spellings of contracts.
        if code.contains("INVALID_TRANSITION") || code == "WF_STATE_TRANSITION_INVALID" {
            self.invalid.inc();
        }
        self.problems.get_or_create(&CodeLabels { code: code.to_owned() }).inc();
    }

    /// How many illegal moves were refused, however a contract spells it.
    pub(crate) fn invalid_transitions(&self) -> u64 {
        self.invalid.get()
    }

    /// All of them as text, without its end.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    queue: String,
    state: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SkipLabels {
    tenant: String,
    reason: &'static str,
}

/// What the store holds, at the moment when it is asked.
pub(crate) struct StoreFigures {
    registry: Registry,
    jobs: Family<JobLabels, Gauge>,
    oldest_ready: Family<QueueLabels, Gauge<f64, AtomicU64>>,
    letters: Family<TenantLabels, Counter>,
    skipped_slots: Family<SkipLabels, Counter>,
    workers: Gauge,
    held: Gauge,
    up: Gauge,
}

impl Default for StoreFigures {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("windlass");
        let (jobs, oldest_ready) = (Family::default(), Family::default());
        let (workers, held, up) = (Gauge::default(), Gauge::default(), Gauge::default());
        let help = "Jobs that are kept, by queue and state";
        registry.register("jobs", help, Family::clone(&jobs));
        let help = "For how long the job has been ready that waits longest, by queue";
        registry.register_with_unit(
            "oldest_ready",
            help,
            Unit::Seconds,
            Family::clone(&oldest_ready),
        );
        let (letters, skipped_slots) = (Family::default(), Family::default());
        let help = "Jobs that became dead letters, on any node since this process began to look; tenants beyond \
                    the first thousand together, without a name";
        registry.register("dead_letters", help, Family::clone(&letters));
        let help = "Slots of schedules that were skipped, in the same manner";
        registry.register("skipped_slots", help, Family::clone(&skipped_slots));
        registry.register("workers", "Worker sessions that are known", Gauge::clone(&workers));
        registry.register("jobs_held", "Jobs that workers hold", Gauge::clone(&held));
        registry.register("store_up", "Whether the store answers: 1 or 0", Gauge::clone(&up));
        Self { registry, jobs, oldest_ready, letters, skipped_slots, workers, held, up }
    }
}

impl StoreFigures {
    /// Asks the store.
    pub(crate) async fn read(
        &self,
        engine: &Engine,
        counts: &Counts,
        scope: &Scope,
    ) -> Result<(), Error> {
        let store = engine.store();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let counted = counts.read(engine, scope).await?;
        for (queue, state, count) in counted.rows.iter().cloned() {
            self.jobs.get_or_create(&JobLabels { queue, state }).inc_by(number(count));
        }
        // Tenants share the names of queues.
        let mut oldest: BTreeMap<&Queue, Timestamp> = BTreeMap::new();
        for OldestReady { queue, since, .. } in counted.oldest.iter() {
            let known = oldest.entry(queue).or_insert(*since);
            *known = (*known).min(*since);
        }
        for (queue, since) in oldest {
            let age = engine.now().since(since).as_secs_f64();
            self.oldest_ready.get_or_create(&QueueLabels { queue: queue.to_string() }).set(age);
        }
        let mut sessions = store.sessions().await?;
        sessions.retain(|session| is_worker_of(scope, &session.worker));
        self.workers.set(number(sessions.len() as u64));
        self.held.set(number(sessions.iter().map(|session| session.held).sum()));
        Ok(())
    }

    /// What this process has counted by tenant, as far as the scope may see it.
    pub(crate) fn count(&self, totals: &Totals, scope: &Scope) {
        for (tenant, count) in totals.letters_seen_by(scope) {
            self.letters.get_or_create(&TenantLabels { tenant }).inc_by(count);
        }
        for (tenant, reason, count) in totals.skipped_seen_by(scope) {
            self.skipped_slots.get_or_create(&SkipLabels { tenant, reason }).inc_by(count);
        }
    }

    /// Does the store answer?
    pub(crate) fn up(&self, is_up: bool) {
        self.up.set(i64::from(is_up));
    }

    /// All of them as text, without its end.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        encode_registry(&mut text, &self.registry).expect("a string takes everything");
        text
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::http::routes::ROUTES;

    /// The page on figures: each with its type, its labels and what it says.
    fn page() -> String {
        let figures = Figures::new(&SpanCounts::default());
        figures.call(&ROUTES[0], StatusCode::OK, Duration::from_millis(1));
        figures.problem("NOT_FOUND");
        let held = StoreFigures::default();
        let (queue, state) = ("default".to_owned(), "queued".to_owned());
        held.oldest_ready.get_or_create(&QueueLabels { queue: queue.clone() }).set(1.0);
        held.jobs.get_or_create(&JobLabels { queue, state }).set(1);
        let (tenant, reason) = ("default".to_owned(), "missed");
        held.letters.get_or_create(&TenantLabels { tenant: tenant.clone() }).inc();
        held.skipped_slots.get_or_create(&SkipLabels { tenant, reason }).inc();
        let text = figures.text() + &held.text();
        let mut page = String::from(
            "# Figures\n\nWritten from `crates/server/src/http/core/figures.rs` by a test; `make bless` renews it.\n\n\
             `GET /metrics` tells them in the format of OpenMetrics. Counters are of one process since its start; what \
             the store\nholds is the same on every node, so take it from one of them, or the largest.\n\
             A token for every tenant (`*`) sees all; any other sees what is its own tenant's, and needs rules of its own.\n\
             [`windlass.rules.yml`](prometheus/windlass.rules.yml) has alerts for them.\n\n\
             | figure | type | labels | what it says |\n|---|---|---|---|\n",
        );
        let lines: Vec<&str> = text.lines().collect();
        for help in lines.iter().filter_map(|line| line.strip_prefix("# HELP ")) {
            let (name, says) = help.split_once(' ').expect("a name and a sentence");
            let kind = lines.iter().find_map(|line| {
                line.strip_prefix("# TYPE ")?.strip_prefix(name)?.strip_prefix(' ')
            });
            let sample =
                lines.iter().find(|line| line.starts_with(name)).expect("each has a sample");
            let labels = sample
                .split_once('{')
                .map_or("", |(_, rest)| rest.split_once('}').map_or("", |(labels, _)| labels));
            let labels: Vec<&str> = labels
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(name, _)| name)
                .collect();
            let labels =
                labels.into_iter().filter(|name| *name != "le").collect::<Vec<_>>().join(", ");
            let shown =
                if kind == Some("counter") { format!("{name}_total") } else { name.to_owned() };
            let _ = writeln!(
                page,
                "| `{shown}` | {} | {labels} | {says} |",
                kind.expect("each has a type")
            );
        }
        page
    }

    #[test]
    fn the_page_on_figures_is_up_to_date() {
        windlass_testkit::docs::compare_page("metrics.md", &page());
    }

    #[test]
    fn the_shipped_alerts_speak_of_figures_that_exist() {
        let rules = include_str!("../../../../../docs/prometheus/windlass.rules.yml");
        let page = page();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let names =
            rules.split(|letter| !is_part(letter)).filter(|word| word.starts_with("windlass_"));
        let mut count = 0;
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "{name} is no figure");
            count += 1;
        }
        assert!(count >= 5, "{count} figures are used");
    }
}
