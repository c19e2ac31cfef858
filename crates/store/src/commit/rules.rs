//! What rules have to do with a commit: it goes by them, may change them, and tells breakers what became of executions.

use windlass_kernel::{
    About, Job, Note, Refusal, Rule, RuleName, Says, TenantId, Timestamp,
    ops::Makes,
    rule::{Part, RuleOp, RuleState},
};

use super::{Reply, WorkingSet};
use crate::rules::{Outcome, RuleChange, Rulebook};

impl<P: Default> WorkingSet<P> {
    /// Says by which rules the commit is decided.
    pub(crate) fn set_rules(&mut self, book: &Rulebook) {
        self.rules = book.rules.clone();
        self.outcomes = book.has_breakers().then(Vec::new);
    }

    /// What became of executions so far.
    pub(crate) fn take_outcomes(&mut self) -> Vec<Outcome> {
        self.outcomes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Sets a rule or takes it away.
    pub(crate) fn apply_rule(
        &mut self,
        book: &mut Rulebook,
        op: &RuleOp,
        now: Timestamp,
    ) -> Result<Reply, Refusal> {
        let (rule, change) = book.apply(op, now)?;
        if let Some(change) = change {
            let forgets = match &change {
                RuleChange::Put { forgets, .. } => *forgets,
                RuleChange::Drop(_) => true,
            };
            let note = rule_note(op, &rule);
            self.note(note);
            if forgets {
                self.changes.rule_states.retain(|(name, _), _| *name != rule.name);
            }
            self.changes.rules.push(change);
            self.rules = book.rules.clone();
        }
        Ok(Reply::Rule(rule))
    }

    #[cfg(feature = "postgres")]
    /// The rules that this commit sets or takes away.
    pub(crate) fn rules_set(&self) -> Vec<RuleName> {
        let name = |change: &RuleChange| match change {
            RuleChange::Put { rule, .. } => rule.name.clone(),
            RuleChange::Drop(name) => name.clone(),
        };
        self.changes.rules.iter().map(name).collect()
    }

    #[cfg(feature = "postgres")]
    /// Does this commit make a rule forget what it remembered?
    pub(crate) fn forgets(&self, rule: &RuleName) -> bool {
        self.changes.rules.iter().any(|change| match change {
            RuleChange::Put { rule: put, forgets } => *forgets && put.name == *rule,
            RuleChange::Drop(name) => name == rule,
        })
    }

    /// Notes what rules remember from now on.
    pub(crate) fn remember(&mut self, states: Vec<(RuleName, Part, RuleState)>) {
        let states = states.into_iter().map(|(rule, part, state)| ((rule, part), state));
        self.changes.rule_states.extend(states);
    }

    /// The rule that lets nothing new in where the new job would wait.
    pub(super) fn drained_by(
        &self,
        tenant: &TenantId,
        makes: Makes<'_>,
        source: Option<&Job>,
    ) -> Option<&RuleName> {
        if self.rules.is_empty() {
            return None;
        }
        let (queue, kind) = match makes {
            Makes::Nothing => return None,
            Makes::New(op) => (&op.new.queue, &op.new.kind),
            Makes::Again { .. } => {
                let spec = &source?.spec;
                (&spec.queue, &spec.kind)
            }
        };
        let drains =
            |rule: &&Rule| rule.says == Says::Drain && rule.scope.covers(queue, tenant, kind);
        self.rules.iter().find(drains).map(|rule| &rule.name)
    }
}

/// What is told of a rule that was set or taken away. One that names no tenant is told to the store's own.
fn rule_note(op: &RuleOp, rule: &Rule) -> Note {
    let (by, reason, what) = match op {
        RuleOp::Put(put) => (&put.by, &put.reason, "set"),
        RuleOp::Drop(drop) => (&drop.by, &drop.reason, "dropped"),
    };
    let tenant = rule.scope.tenant.clone().unwrap_or_else(TenantId::of_store);
    let note = Note::new(tenant, About::Rule(rule.name.clone()), what, by.clone());
    let says = serde_json::to_value(&rule.says).expect("a rule is plain data");
    let scope = serde_json::to_value(&rule.scope).expect("a rule is plain data");
    let note = note.with("scope", scope).with("says", says);
    match reason {
        Some(reason) => note.with("reason", reason.as_str()),
        None => note,
    }
}
