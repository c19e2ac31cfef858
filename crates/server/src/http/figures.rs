//! Figures of this process, as Prometheus reads them.

use std::time::Duration;

use axum::http::StatusCode;
use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode_registry},
    metrics::{
        counter::Counter,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use super::route::Route;

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
}

impl Default for Figures {
    fn default() -> Self {
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
        Self { registry, calls, seconds, problems, invalid }
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
