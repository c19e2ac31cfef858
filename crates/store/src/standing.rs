//! Why a job is not running: what all that was read of it and around it comes to.
//!
//! A backend reads; what it means is said here, once, by the same look at the rules that a claim has.

use std::{collections::HashMap, time::Duration};

use windlass_kernel::{
    Job, JobId, Kind, Lane, Queue, Rule, State, TenantId, Timestamp, WorkerId,
    admit::{self, Head},
    rule::Part,
};

use crate::{
    read::{Holder, ListeningWorker, Scope, Standing},
    rules::{HeldParts, Rulebook, RulesView},
};

/// What one snapshot shows of a job and of all that could keep it.
pub(crate) struct StandingRows {
    pub(crate) job: Job,
    pub(crate) lane: Lane,
    pub(crate) book: Rulebook,
    /// Every job that is held.
    pub(crate) held: Vec<HeldJob>,
    /// How many jobs come before it.
    pub(crate) before: u64,
    pub(crate) listening: Vec<ListeningWorker>,
}

/// A job that is held.
pub(crate) struct HeldJob {
    pub(crate) id: JobId,
    pub(crate) queue: Queue,
    pub(crate) tenant: TenantId,
    pub(crate) kind: Kind,
    pub(crate) lane: Lane,
    pub(crate) worker: WorkerId,
    pub(crate) started_at: Option<Timestamp>,
}

impl StandingRows {
    /// What it comes to, in the eyes of this scope: whatever is held counts, and only what it may see is named.
    pub(crate) fn standing(self, scope: &Scope, now: Timestamp) -> Standing {
        let Self { job, lane, book, mut held, before, mut listening } = self;
        let mut parts = HeldParts::default();
        for row in &held {
            parts.add(&book.rules, (&row.queue, &row.tenant, &row.kind, row.lane), 1);
        }
        listening.retain(|it| it.listens.is_seen_by(scope));
        let mut holds: HashMap<&WorkerId, usize> = HashMap::new();
        held.iter().for_each(|row| *holds.entry(&row.worker).or_default() += 1);
        listening
            .iter_mut()
            .for_each(|it| it.holds = holds.get(&it.worker).copied().unwrap_or_default());
        held.retain(|row| scope.admits(&row.tenant));
        let spec = &job.spec;
        let head = Head {
            queue: &spec.queue,
            tenant: &spec.tenant,
            kind: &spec.kind,
            lane,
            retries: job.state == State::RetryScheduled,
            ranks: vec![spec.rank()].into(),
            isolated_since: None,
        };
        let known = RulesView { states: &book.states, held: &parts };
        let blocked = admit::blocked(&head, &book.rules, &known, now);
        let keeps = |rule: &&Rule| blocked.iter().any(|it| it.rule == rule.name);
        let rules: Vec<Rule> = book.rules.iter().filter(keeps).cloned().collect();
        let counting = rules.iter().filter(|rule| rule.counts_held());
        let holders = counting.flat_map(|rule| holders_of(rule, &head, &held)).collect();
        let running = running_in(&spec.queue, &held, now);
        Standing { now, blocked, rules, holders, listening, before, running, job }
    }
}

/// Who holds the slots that the jobs of a head would take.
fn holders_of<'a>(
    rule: &'a Rule,
    head: &Head<'_>,
    held: &'a [HeldJob],
) -> impl Iterator<Item = Holder> + use<'a> {
    let own = Part::of(rule.says.each(), head.queue, head.tenant, head.kind, head.lane);
    let same = held.iter().filter(move |row| row.part_of(rule) == own);
    same.take(Standing::HOLDERS_MAX).map(|row| row.holder(rule))
}

/// How many jobs of a queue run, and for how long on average.
fn running_in(queue: &Queue, held: &[HeldJob], now: Timestamp) -> Option<(u64, Duration)> {
    let in_queue = held.iter().filter(|row| row.queue == *queue);
    let since: Vec<Duration> =
        in_queue.filter_map(|row| Some(now.since(row.started_at?))).collect();
    let count = u32::try_from(since.len()).unwrap_or(u32::MAX);
    (count > 0).then(|| (u64::from(count), since.iter().sum::<Duration>() / count))
}

impl HeldJob {
    fn part_of(&self, rule: &Rule) -> Option<Part> {
        let covers = rule.scope.covers(&self.queue, &self.tenant, &self.kind);
        let part = Part::of(rule.says.each(), &self.queue, &self.tenant, &self.kind, self.lane);
        part.filter(|_| covers)
    }

    fn holder(&self, rule: &Rule) -> Holder {
        Holder { rule: rule.name.clone(), job_id: self.id, worker: self.worker.clone() }
    }
}
