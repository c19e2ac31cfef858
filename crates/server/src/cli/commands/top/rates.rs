//! Rates: how much more there was at one look than at the look before, by the second.

use std::{collections::BTreeMap, collections::VecDeque};

use windlass_kernel::Timestamp;

use super::picture::{Overview, Totals};

/// How many looks the little curve shows.
const CURVE: usize = 40;

/// What two looks say together.
#[derive(Default)]
pub(super) struct Rates {
    before: Option<(Timestamp, Totals)>,
    now: Option<Rate>,
    /// Jobs that ended well, by the second, oldest first.
    curve: VecDeque<f64>,
}

/// So much a second.
#[derive(Clone, Default)]
pub(super) struct Rate {
    pub(super) enqueued: f64,
    pub(super) started: f64,
    pub(super) succeeded: f64,
    pub(super) retried: f64,
    pub(super) failed: f64,
    pub(super) started_by_queue: BTreeMap<String, f64>,
}

impl Rates {
    /// Takes in one more look.
    pub(super) fn see(&mut self, overview: &Overview) {
        let Some(totals) = &overview.totals else { return };
        // A server that began anew counts from zero: what it says can be compared with its next word.
        if let Some((at, before)) = &self.before
            && totals.started >= before.started
            && totals.enqueued >= before.enqueued
        {
            let seconds = overview.now.since(*at).as_secs_f64();
            if seconds > 0.0 {
                let rate = Rate::between(before, totals, seconds);
                self.curve.push_back(rate.succeeded);
                while self.curve.len() > CURVE {
                    self.curve.pop_front();
                }
                self.now = Some(rate);
            }
        }
        self.before = Some((overview.now, totals.clone()));
    }

    /// What is known of now, after two looks.
    pub(super) fn now(&self) -> Option<&Rate> {
        self.now.as_ref()
    }

    /// The last looks as a curve of one line; empty until there is something to see.
    pub(super) fn curve(&self) -> String {
        const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let most = self.curve.iter().copied().fold(0.0, f64::max);
        if most <= 0.0 || self.curve.len() < 2 {
            return String::new();
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and 1"
        )]
        let step = |rate: &f64| STEPS[((rate / most * 7.0).round() as usize).min(7)];
        self.curve.iter().map(step).collect()
    }
}

impl Rate {
    fn between(before: &Totals, now: &Totals, seconds: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let of_queue = |(queue, count): (&String, &u64)| {
            let before = before.started_by_queue.get(queue).copied().unwrap_or(0);
            (queue.clone(), rate(*count, before))
        };
        Self {
            enqueued: rate(now.enqueued, before.enqueued),
            started: rate(now.started, before.started),
            succeeded: rate(now.succeeded, before.succeeded),
            retried: rate(now.retried, before.retried),
            failed: rate(now.failed, before.failed),
            started_by_queue: now.started_by_queue.iter().map(of_queue).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn look(second: u64, started: u64) -> Overview {
        let now = Timestamp::MIN.plus(Duration::from_secs(second));
        let totals = Totals { started, succeeded: started, ..Totals::default() };
        Overview { now, counted_at: now, totals: Some(totals), ..Overview::default() }
    }

    #[test]
    fn a_rate_needs_two_looks_and_outlives_a_restart() {
        let mut rates = Rates::default();
        rates.see(&look(1, 100));
        assert!(rates.now().is_none());
        rates.see(&look(3, 300));
        assert_eq!(rates.now().map(|rate| rate.started), Some(100.0));
        // It began anew.
        rates.see(&look(4, 10));
        rates.see(&look(5, 60));
        assert_eq!(rates.now().map(|rate| rate.started), Some(50.0));
        assert_eq!(rates.curve(), "█▅");
    }
}
