//! The rules of a store, and what they remember, as far as one commit needs to know it.
//!
//! What a rule says is decided by the kernel. Here it is kept at hand, and what changes is noted, so that a backend
//! can save it with everything else.

use std::{collections::HashMap, sync::Arc};

use windlass_kernel::{
    Cause, Event, Fact, Kind, Lane, Queue, Refusal, Rule, RuleName, Says, TenantId, Timestamp,
    admit::Books,
    rule::{Heard, Part, RuleOp, RuleState},
};

/// Rules in the order of their names, and what they remember.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rulebook {
    pub(crate) rules: Arc<Vec<Rule>>,
    pub(crate) states: HashMap<(RuleName, Part), RuleState>,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleChange {
    /// It stands so from now on. If it says something else than before, what it remembered is forgotten.
    Put {
        /// The rule.
        rule: Rule,
        /// Is what it remembered of no use?
        forgets: bool,
    },
    /// It is gone, with all that it remembered.
    Drop(RuleName),
}

impl Rulebook {
    /// Does what was asked; none, if it is so already.
    pub(crate) fn apply(
        &mut self,
        op: &RuleOp,
        now: Timestamp,
    ) -> Result<(Rule, Option<RuleChange>), Refusal> {
        match op {
            RuleOp::Put(put) => {
                let rule = put.decide(&self.rules, now)?;
                let known = self.rules.iter().find(|known| known.name == rule.name);
                if known == Some(&rule) {
                    return Ok((rule, None));
                }
                let counts = |says: &Says| (says.word(), says.each());
                let forgets = known.is_some_and(|known| counts(&known.says) != counts(&rule.says));
                let change = RuleChange::Put { rule: rule.clone(), forgets };
                self.change(&change);
                Ok((rule, Some(change)))
            }
            RuleOp::Drop(drop) => {
                let rule = drop.decide(&self.rules)?.clone();
                let change = RuleChange::Drop(rule.name.clone());
                self.change(&change);
                Ok((rule, Some(change)))
            }
        }
    }

    fn change(&mut self, change: &RuleChange) {
        let rules = Arc::make_mut(&mut self.rules);
        let (name, forgets) = match change {
            RuleChange::Put { rule, forgets } => (&rule.name, *forgets),
            RuleChange::Drop(name) => (name, true),
        };
        rules.retain(|rule| rule.name != *name);
        if let RuleChange::Put { rule, .. } = change {
            rules.push(rule.clone());
            rules.sort_by(|one, other| one.name.cmp(&other.name));
        }
        if forgets {
            self.states.retain(|(rule, _), _| rule != name);
        }
    }

    /// Tells breakers what became of an execution. It gives back what they remember from now on.
    pub(crate) fn hear(
        &mut self,
        outcome: &Outcome,
        now: Timestamp,
    ) -> Vec<(RuleName, Part, RuleState)> {
        let Outcome { queue, tenant, kind, lane, began_at, failed_with } = outcome;
        let heard = Heard { began_at: *began_at, failed_with: failed_with.as_deref() };
        let mut changed = Vec::new();
        for rule in self.rules.iter() {
            let Says::Breaker(breaker) = &rule.says else { continue };
            if !rule.scope.covers(queue, tenant, kind) {
                continue;
            }
            let Some(part) = Part::of(breaker.each, queue, tenant, kind, *lane) else { continue };
            let key = (rule.name.clone(), part);
            let before = match self.states.get(&key) {
                Some(RuleState::Breaker(state)) => *state,
                _ => Default::default(),
            };
            let after = breaker.after(before, &heard, now);
            if after != before {
                let state = RuleState::Breaker(after);
                self.states.insert(key.clone(), state);
                changed.push((key.0, key.1, state));
            }
        }
        changed
    }

    /// Is there a breaker that wants to hear what becomes of executions?
    pub(crate) fn has_breakers(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.says, Says::Breaker(_)))
    }
}

/// What became of an execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) queue: Queue,
    pub(crate) tenant: TenantId,
    pub(crate) kind: Kind,
    pub(crate) lane: Lane,
    pub(crate) began_at: Timestamp,
    pub(crate) failed_with: Option<String>,
}

impl Outcome {
    /// What the event says about the execution of a job, which this is before the event: it ended well, or it
    /// failed. That it was cut off or called off says nothing.
    pub(crate) fn of(job: &windlass_kernel::Job, event: &Event) -> Option<Self> {
        let failed_with = match (event.cause, &event.fact) {
            (Cause::Completed | Cause::CompletedInPart, _) => None,
            (
                Cause::RetryableError
                | Cause::Timeout
                | Cause::HeartbeatTimeout
                | Cause::NonRetryableError
                | Cause::RetriesExhausted,
                Fact::Retry { failure, .. } | Fact::Buried { failure, .. },
            ) => Some(failure.code.clone()),
            _ => return None,
        };
        let spec = &job.spec;
        Some(Self {
            queue: spec.queue.clone(),
            tenant: spec.tenant.clone(),
            kind: spec.kind.clone(),
            lane: spec.lane(),
            began_at: job.execution_started_at?,
            failed_with,
        })
    }
}

/// How many jobs are held, by rule and part.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeldParts(HashMap<RuleName, HashMap<Part, usize>>);

impl HeldParts {
    /// So many more of these jobs are held, or fewer.
    pub(crate) fn add(
        &mut self,
        rules: &[Rule],
        (queue, tenant, kind, lane): (&Queue, &TenantId, &Kind, Lane),
        change: isize,
    ) {
        for rule in rules.iter().filter(|rule| rule.counts_held()) {
            if rule.scope.covers(queue, tenant, kind)
                && let Some(part) = Part::of(rule.says.each(), queue, tenant, kind, lane)
            {
                let parts = match self.0.get_mut(&rule.name) {
                    Some(parts) => parts,
                    None => self.0.entry(rule.name.clone()).or_default(),
                };
                if parts.len() > 4_096 {
                    parts.retain(|_, held| *held > 0);
                }
                let held = parts.entry(part).or_default();
                *held = held.saturating_add_signed(change);
            }
        }
    }

    /// How many of this part are held.
    pub(crate) fn of(&self, rule: &Rule, part: &Part) -> usize {
        self.0.get(&rule.name).and_then(|parts| parts.get(part)).copied().unwrap_or(0)
    }
}

/// What is known of the parts that rules cover.
pub(crate) struct RulesView<'a> {
    pub(crate) states: &'a HashMap<(RuleName, Part), RuleState>,
    pub(crate) held: &'a HeldParts,
}

impl Books for RulesView<'_> {
    fn held(&self, rule: &Rule, part: &Part) -> usize {
        self.held.of(rule, part)
    }

    fn state(&self, rule: &Rule, part: &Part) -> Option<RuleState> {
        self.states.get(&(rule.name.clone(), part.clone())).copied()
    }
}
