//! Rules: what people say about who may run, while everything runs.
//!
//! A rule has a name, says what it applies to, and one thing: a pause, a drain, a limit, a weight, turns, a
//! breaker or a budget. Rules are rows and can be changed at any time; the next claim obeys.
//!
//! What a rule has to remember between claims is its [`RuleState`]. How many slots of a limit are taken is never
//! remembered: that is counted from leases, so a crash cannot leak one.

mod breaker;
mod budget;
mod owner;
mod rate;
mod scope;
mod spec;

use serde::{Deserialize, Serialize};

pub use self::{
    breaker::{Breaker, BreakerState, Heard},
    budget::{Budget, BudgetState},
    rate::{Rate, RateState},
    scope::{Each, Part, Scope},
    spec::{DropRule, PutRule, RuleName, RuleOp, Says},
};
use crate::{Actor, Timestamp};

/// A rule as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its name. For what depends on something outside it is best that thing's name, such as `stripe`.
    pub name: RuleName,
    /// What it applies to.
    pub scope: Scope,
    /// What it says.
    pub says: Says,
    /// Who said so.
    pub by: Actor,
    /// In their words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    pub since: Timestamp,
}

impl Rule {
    /// Can it keep a job from being claimed?
    pub fn restrains(&self) -> bool {
        match self.says {
            Says::Pause | Says::Concurrency { .. } | Says::Rate(_) => true,
            Says::Breaker(_) | Says::RetryBudget(_) => true,
            Says::Drain | Says::Weight { .. } | Says::TurnsByKey => false,
        }
    }

    /// Does it need to know how many jobs are held?
    pub fn counts_held(&self) -> bool {
        matches!(self.says, Says::Concurrency { .. } | Says::Breaker(_))
    }

    /// Does it have a [`RuleState`]? What a limit goes by is counted from leases.
    pub fn remembers(&self) -> bool {
        matches!(self.says, Says::Rate(_) | Says::Breaker(_) | Says::RetryBudget(_))
    }

    /// Must two claims that it covers come one after the other? What one takes the other has to see.
    pub fn is_shared(&self) -> bool {
        self.restrains() && self.says != Says::Pause
    }
}

/// What a rule remembers of one part of what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleState {
    /// Of a rate.
    Rate(RateState),
    /// Of a retry budget.
    RetryBudget(BudgetState),
    /// Of a circuit breaker.
    Breaker(BreakerState),
}

impl RuleState {
    /// From when on it is the same as knowing nothing, if time alone makes it so.
    pub fn forget_at(&self) -> Option<Timestamp> {
        match self {
            RuleState::Rate(state) => Some(state.full_at),
            RuleState::RetryBudget(_) | RuleState::Breaker(_) => None,
        }
    }

    /// Is it the same as knowing nothing? Then it need not be kept.
    pub fn is_forgotten(&self, now: Timestamp) -> bool {
        match self {
            RuleState::Rate(state) => state.full_at <= now,
            RuleState::RetryBudget(state) => *state == BudgetState::default(),
            RuleState::Breaker(state) => *state == BreakerState::default(),
        }
    }
}
