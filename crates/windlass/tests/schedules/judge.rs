//! Compares what happened with what should have: slot by slot, with clocks that are read minute by minute.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use windlass::{Timestamp, testing};
use windlass_kernel::schedule::{CatchUp, GRACE, Overlap, When};
use windlass_store::{
    ReadFeed as _, ReadJobs as _,
    read::{JobFilter, PageFrom, Scope},
    sqlite::Sqlite,
};
use windlass_testkit::wall_clock::WallClock;

use crate::{
    plan::{Plan, ZONES},
    year::{Told, tenant},
};

/// When nobody could reach the store.
type Dark = [(Timestamp, Timestamp)];

/// The year, and the hour after it in which what is late is made up for.
fn year() -> (Timestamp, Timestamp) {
    let begin: Timestamp = testing::BEGINS_AT.parse().unwrap();
    (begin, begin.plus(Duration::from_secs(365 * 24 * 60 * 60)))
}

pub(crate) async fn judge(store: &Sqlite, plans: &[Plan], dark: &Dark, told: &mut Told) {
    let report = store.check().unwrap();
    assert!(report.is_clean(), "{report}");
    let mut jobs = read_jobs(store).await;
    let mut skips = read_skips(store).await;
    for (name, expected) in expected(plans) {
        let plan = &plans[name];
        let jobs = jobs.remove(&plan.name).unwrap_or_default();
        let skips = skips.remove(&plan.name).unwrap_or_default();
        Trial { plan, expected, jobs, skips, dark }.judge(told);
    }
    assert!(jobs.is_empty() && skips.is_empty(), "something is told of no schedule");
}

/// The slots of each schedule, by its place. Zone by zone, for what a clock shows in a year takes much room.
fn expected(plans: &[Plan]) -> BTreeMap<usize, BTreeSet<Timestamp>> {
    let (begin, end) = year();
    let mut all = BTreeMap::new();
    for zone in ZONES {
        let clock = WallClock::by_minutes(zone, begin, end);
        let mut known: BTreeMap<&str, BTreeSet<Timestamp>> = BTreeMap::new();
        for (place, plan) in plans.iter().enumerate() {
            if let When::Cron { expression, zone: own } = &plan.spec.when
                && own == zone
            {
                let slots = known
                    .entry(expression)
                    .or_insert_with(|| clock.slots(expression).into_iter().collect());
                all.insert(place, slots.clone());
            }
        }
    }
    for (place, plan) in plans.iter().enumerate() {
        match plan.spec.when {
            When::At(at) => {
                all.insert(place, BTreeSet::from([at]));
            }
            When::Every { period, anchor } => {
                let slots = std::iter::successors(Some(anchor), |slot| Some(slot.plus(period)));
                all.insert(place, slots.take_while(|slot| *slot < end).collect());
            }
            When::Cron { .. } => {}
        }
    }
    all
}

/// When each job of a slot was made.
type Jobs = BTreeMap<Timestamp, Vec<Timestamp>>;

/// All jobs, by schedule and slot.
async fn read_jobs(store: &Sqlite) -> BTreeMap<String, Jobs> {
    let mut all: BTreeMap<String, Jobs> = BTreeMap::new();
    let mut from = None;
    loop {
        let cursor = PageFrom { from, limit: PageFrom::LIMIT_MAX };
        let page = store.jobs(JobFilter::of(tenant()), cursor).await.unwrap();
        for job in page.items {
            let (name, slot) = job.spec.idempotency_key.as_str().split_once('@').unwrap();
            let slot: Timestamp = slot.parse().unwrap();
            assert_eq!(job.spec.scheduled_at, Some(slot));
            let jobs = all.entry(name.to_owned()).or_default();
            jobs.entry(slot).or_default().push(job.spec.created_at);
        }
        from = page.next;
        if from.is_none() {
            return all;
        }
    }
}

/// A note that slots were skipped.
struct Skip {
    reason: String,
    count: usize,
    first: Timestamp,
    last: Timestamp,
}

async fn read_skips(store: &Sqlite) -> BTreeMap<String, Vec<Skip>> {
    let mut all: BTreeMap<String, Vec<Skip>> = BTreeMap::new();
    let mut after = 0;
    loop {
        let events = store.feed(&Scope::Every, after, 1_000).await.unwrap();
        let Some(last) = events.events.last() else { return all };
        after = last.number;
        for event in events.events.iter().filter(|event| event.line.starts_with("{\"about\":")) {
            let note: serde_json::Value = serde_json::from_str(&event.line).unwrap();
            if note["what"] != "skipped" {
                continue;
            }
            let text = |field: &str| note["detail"][field].as_str().unwrap();
            let skip = Skip {
                reason: text("reason").to_owned(),
                count: usize::try_from(note["detail"]["count"].as_u64().unwrap()).unwrap(),
                first: text("first").parse().unwrap(),
                last: text("last").parse().unwrap(),
            };
            all.entry(note["name"].as_str().unwrap().to_owned()).or_default().push(skip);
        }
    }
}

/// One schedule, and all that is known of it.
struct Trial<'a> {
    plan: &'a Plan,
    expected: BTreeSet<Timestamp>,
    jobs: Jobs,
    skips: Vec<Skip>,
    dark: &'a Dark,
}

/// How long it may take until what is due is made, on a cluster that is well: a line to the store may be slow, and of
/// thousands that are due at midnight some are the last.
const PROMPT: Duration = Duration::from_secs(30);

impl Trial<'_> {
    fn judge(self, told: &mut Told) {
        let name = &self.plan.name;
        let skipped = self.skipped();
        for (slot, made) in &self.jobs {
            assert_eq!(made.len(), 1, "{name} fired {slot} more than once");
            assert!(self.expected.contains(slot), "{name} fired {slot}, which is no slot of it");
            assert!(!skipped.contains_key(slot), "{name} fired {slot}, and says it was skipped");
            self.check_time(*slot, made[0]);
        }
        for slot in &self.expected {
            let is_told = self.jobs.contains_key(slot) || skipped.contains_key(slot);
            assert!(is_told, "{name} neither fired {slot} nor says why");
        }
        for (slot, reason) in &skipped {
            assert!(self.expected.contains(slot), "{name} skipped {slot}, which is no slot of it");
            self.check_reason(*slot, reason);
        }
        self.check_catch_up(&skipped);
        told.fired += self.jobs.len() as u64;
        let count = |word: &str| skipped.values().filter(|reason| **reason == word).count() as u64;
        told.missed += count("missed") + count("bound_reached");
        told.overlapped += count("overlap");
        self.count_changes(told);
    }

    /// The slots that notes speak of, with the reason. A note about several says how many.
    fn skipped(&self) -> BTreeMap<Timestamp, &str> {
        let mut skipped = BTreeMap::new();
        for skip in &self.skips {
            let slots: Vec<_> = self.expected.range(skip.first..=skip.last).collect();
            let name = &self.plan.name;
            assert_eq!(slots.len(), skip.count, "{name}: {} to {}", skip.first, skip.last);
            for slot in slots {
                let before = skipped.insert(*slot, skip.reason.as_str());
                assert_eq!(before, None, "{name} says twice that {slot} was skipped");
            }
        }
        skipped
    }

    /// Could nobody reach the store from this time to that, at some moment?
    fn was_dark(&self, from: Timestamp, to: Timestamp) -> bool {
        self.dark.iter().any(|(since, until)| *since <= to && from <= *until)
    }

    /// A job is made at its time, unless nobody was there or it had to wait.
    fn check_time(&self, slot: Timestamp, made: Timestamp) {
        let (name, jitter) = (&self.plan.name, self.plan.spec.jitter);
        assert!(made >= slot, "{name} fired {slot} at {made}, too early");
        let latest = slot.plus(jitter).plus(PROMPT);
        let waits = self.plan.spec.overlap == Overlap::Queue;
        let is_late = made > latest && !waits && !self.was_dark(slot, made);
        assert!(!is_late, "{name} fired {slot} at {made}, and somebody was there");
    }

    fn check_reason(&self, slot: Timestamp, reason: &str) {
        let spec = &self.plan.spec;
        let may_be = match reason {
            "missed" => matches!(spec.catch_up, CatchUp::Skip | CatchUp::One),
            "bound_reached" => matches!(spec.catch_up, CatchUp::All { .. }),
            "overlap" => spec.overlap == Overlap::Skip,
            _ => false,
        };
        let name = &self.plan.name;
        assert!(may_be, "{name} skipped {slot} because of {reason}, and that is not what it does");
        let is_dark = self.was_dark(slot, slot.plus(spec.jitter + GRACE));
        assert!(reason == "overlap" || is_dark, "{name} missed {slot}, and somebody was there");
    }

    /// Of slots that were missed together, as many are made up for as the policy says. Where it cannot be said which
    /// were only late, or a job stood in the way, it is not asked.
    fn check_catch_up(&self, skipped: &BTreeMap<Timestamp, &str>) {
        let spec = &self.plan.spec;
        if spec.overlap != Overlap::Allow || !spec.jitter.is_zero() {
            return;
        }
        for (since, until) in self.dark {
            let late = until.minus(GRACE + PROMPT);
            let is_clear =
                self.expected.range(late.min(*until)..until.plus(PROMPT)).next().is_none()
                    && self.expected.range(since.minus(PROMPT)..*since).next().is_none()
                    && since.plus(GRACE) < late;
            if !is_clear {
                continue;
            }
            let missed: Vec<_> = self.expected.range(*since..late).collect();
            let skips = missed.iter().filter(|slot| skipped.contains_key(**slot)).count();
            let most = match spec.catch_up {
                CatchUp::Skip => 0,
                CatchUp::One => 1,
                CatchUp::All { max } => max as usize,
            };
            let name = &self.plan.name;
            assert_eq!(skips, missed.len().saturating_sub(most), "{name}, {since} to {until}");
            // The newest are made up for.
            let made = missed.iter().rev().take(most).all(|slot| self.jobs.contains_key(*slot));
            assert!(made, "{name} made up for the wrong slots, {since} to {until}");
        }
    }

    /// Counts slots that a change of clocks concerned, in Berlin, where everybody knows when it is.
    fn count_changes(&self, told: &mut Told) {
        let When::Cron { zone, .. } = &self.plan.spec.when else { return };
        if zone != "Europe/Berlin" {
            return;
        }
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        told.missing_hour += u64::from(self.jobs.contains_key(&at("2026-03-29T01:00:00Z")));
        let doubled = at("2026-10-25T00:00:00Z")..at("2026-10-25T02:00:00Z");
        told.doubled_hour += self.jobs.range(doubled).count() as u64;
    }
}
