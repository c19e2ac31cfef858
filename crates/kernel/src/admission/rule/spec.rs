//! What a rule can say, and the ops that set it and take it away.

use serde::{Deserialize, Serialize};

use super::{Breaker, Budget, Each, Rate, Rule, Scope};
use crate::{By, Refusal, TenantId, Timestamp, ops::check_reason};

pub use crate::ids::RuleName;

/// What a rule says about what it covers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// Nothing is started. What runs goes on, and new jobs are taken in.
    Pause,
    /// Nothing new is taken in. What is there runs to its end.
    Drain,
    /// So many may be held at once.
    Concurrency {
        /// How many.
        max: u32,
        /// Of what.
        each: Each,
    },
    /// So many may begin in a time.
    Rate(Rate),
    /// The share of a tenant, when tenants take turns: 1 is usual.
    Weight {
        /// How many turns it has where others have one.
        weight: u32,
    },
    /// The keys of each tenant take turns too.
    TurnsByKey,
    /// Stop after repeated failures, and begin again with a few.
    Breaker(Breaker),
    /// Bounds retries as a share of first tries.
    RetryBudget(Budget),
}

impl Says {
    /// Its word.
    pub fn word(&self) -> &'static str {
        match self {
            Says::Pause => "pause",
            Says::Drain => "drain",
            Says::Concurrency { .. } => "concurrency",
            Says::Rate(_) => "rate",
            Says::Weight { .. } => "weight",
            Says::TurnsByKey => "turns_by_key",
            Says::Breaker(_) => "breaker",
            Says::RetryBudget(_) => "retry_budget",
        }
    }

    /// What it counts by itself.
    pub fn each(&self) -> Each {
        match self {
            Says::Concurrency { each, .. } => *each,
            Says::Rate(rate) => rate.each,
            Says::Breaker(breaker) => breaker.each,
            Says::Pause | Says::Drain | Says::Weight { .. } => Each::Together,
            Says::TurnsByKey | Says::RetryBudget(_) => Each::Together,
        }
    }
}

/// Sets a rule: a new one, or another in the place of the one with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutRule {
    /// Its name.
    pub name: RuleName,
    /// What it applies to.
    pub scope: Scope,
    /// What it says.
    pub says: Says,
    /// The tenant that sets it for itself; none for the caretaker.
    pub within: Option<TenantId>,
    /// Who says so.
    pub by: By,
    /// In their words.
    pub reason: Option<String>,
}

impl PutRule {
    /// The most rules of one tenant, and of the caretaker; and as many that only stop a queue. Each claim looks at all
    /// that cover its queues.
    pub const RULES_MAX: usize = 1_000;
    /// The most rules of all tenants together, but for those that only stop a queue.
    pub const RULES_OF_TENANTS_MAX: usize = 5_000;
    /// The greatest weight.
    pub const WEIGHT_MAX: u32 = 1_000;

    /// The rule as it stands from now on. The same again changes nothing.
    pub fn decide(&self, rules: &[Rule], now: Timestamp) -> Result<Rule, Refusal> {
        self.check()?;
        let known = rules.iter().find(|rule| rule.name == self.name);
        self.check_name(known)?;
        if known.is_none() {
            self.check_room(rules)?;
        }
        if let Some(known) = known
            && (&known.scope, &known.says, &known.reason) == (&self.scope, &self.says, &self.reason)
        {
            return Ok(known.clone());
        }
        Ok(Rule {
            name: self.name.clone(),
            scope: self.scope.clone(),
            says: self.says.clone(),
            by: self.by.actor.clone(),
            reason: self.reason.clone(),
            since: now,
        })
    }

    fn check(&self) -> Result<(), Refusal> {
        check_reason(self.reason.as_deref())?;
        if self.scope.kinds.len() > Scope::KINDS_MAX {
            return Err(Refusal::invalid("kinds", "must be at most 100"));
        }
        match &self.says {
            Says::Rate(rate) => rate.check(),
            Says::Breaker(breaker) => breaker.check(),
            Says::RetryBudget(budget) => budget.check(),
            Says::Weight { .. } if self.scope.tenant.is_none() => {
                Err(Refusal::invalid("tenant", "must be named: a weight is a tenant's"))
            }
            Says::Weight { .. } if self.scope.queue.is_some() || !self.scope.kinds.is_empty() => {
                Err(Refusal::invalid(
                    "scope",
                    "must name a tenant alone: tenants take turns as such",
                ))
            }
            Says::Weight { weight } if *weight == 0 || *weight > Self::WEIGHT_MAX => {
                Err(Refusal::invalid(
                    "weight",
                    "must lie between 1 and 1000; to stop a tenant, pause it",
                ))
            }
            Says::TurnsByKey if self.scope.queue.is_none() => {
                Err(Refusal::invalid("queue", "must be named: keys take turns within a queue"))
            }
            Says::Concurrency { max: 0, .. } => {
                Err(Refusal::invalid("max", "must be at least 1; to start nothing, pause it"))
            }
            Says::Pause | Says::Drain | Says::Concurrency { .. } => Ok(()),
            Says::Weight { .. } | Says::TurnsByKey => Ok(()),
        }
    }
}

/// Takes a rule away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DropRule {
    /// Its name.
    pub name: RuleName,
    /// The tenant that drops a rule of its own: another's is not found. Any rule, for the caretaker.
    pub within: Option<TenantId>,
    /// Who does so.
    pub by: By,
    /// In their words.
    pub reason: Option<String>,
}

impl DropRule {
    /// The rule that goes.
    pub fn decide<'a>(&self, rules: &'a [Rule]) -> Result<&'a Rule, Refusal> {
        check_reason(self.reason.as_deref())?;
        let is_mine = |rule: &&Rule| self.within.is_none() || rule.owner() == self.within.as_ref();
        let known = rules.iter().find(|rule| rule.name == self.name).filter(is_mine);
        known.ok_or(Refusal::NotFound { what: "rule" })
    }
}

/// Something that is to happen to a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleOp {
    /// It is set.
    Put(PutRule),
    /// It is taken away.
    Drop(DropRule),
}
