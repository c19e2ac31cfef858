//! What keeps a job from being claimed: a rule, and in which way.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Head;
use crate::{
    Timestamp,
    ids::RuleName,
    rule::{BreakerState, BudgetState, Part, RateState, Rule, RuleState, Says},
};

/// A rule that keeps a job from being claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// The rule.
    pub rule: RuleName,
    /// In which way.
    #[serde(flatten)]
    pub because: Because,
    /// When it lets the next one go, if time alone does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// In which way a rule keeps a job from being claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Because {
    /// It is a pause.
    Paused,
    /// All its slots are taken.
    NoSlot {
        /// How many there are.
        max: u32,
        /// How many are held.
        held: usize,
    },
    /// As many have begun as may begin.
    RateReached,
    /// The breaker is open.
    BreakerOpen {
        /// Failures in a row.
        failures: u32,
    },
    /// The breaker lets a few try, and they are trying.
    BreakerProbes {
        /// How many may.
        allowed: u32,
        /// How many are held.
        held: usize,
    },
    /// Too many retries for so few first tries.
    RetryBudgetSpent,
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Paused => f.write_str("it is paused"),
            Because::NoSlot { max, held } => write!(f, "{held} are held of {max} that may be"),
            Because::RateReached => f.write_str("as many have begun as may begin for now"),
            Because::BreakerOpen { failures } => {
                write!(f, "the breaker is open after {failures} failures in a row")
            }
            Because::BreakerProbes { allowed, held } => {
                write!(f, "the breaker lets {allowed} try, and {held} are held")
            }
            Because::RetryBudgetSpent => f.write_str("the budget for retries is spent"),
        }
    }
}

/// One part of what a rule covers, while slots are shared out.
pub(super) struct Slot<'a> {
    pub(super) rule: &'a Rule,
    pub(super) part: Part,
    held: usize,
    state: Option<RuleState>,
    pub(super) is_changed: bool,
}

impl<'a> Slot<'a> {
    pub(super) fn new(rule: &'a Rule, part: Part, books: &dyn super::Books) -> Self {
        let held = if rule.counts_held() { books.held(rule, &part) } else { 0 };
        let state = books.state(rule, &part);
        Self { rule, part, held, state, is_changed: false }
    }

    /// What the rule remembers of it by now.
    pub(super) fn state(&self) -> Option<RuleState> {
        self.state
    }

    fn rate(&self) -> RateState {
        match self.state {
            Some(RuleState::Rate(state)) => state,
            _ => RateState::default(),
        }
    }

    fn budget(&self) -> BudgetState {
        match self.state {
            Some(RuleState::RetryBudget(state)) => state,
            _ => BudgetState::default(),
        }
    }

    fn breaker(&self) -> BreakerState {
        match self.state {
            Some(RuleState::Breaker(state)) => state,
            _ => BreakerState::default(),
        }
    }

    /// In which way it keeps the jobs of a head back, if it does.
    pub(super) fn blocks(&self, head: &Head<'_>, now: Timestamp) -> Option<Blocked> {
        let (because, until) = match &self.rule.says {
            Says::Pause => (Because::Paused, None),
            Says::Concurrency { max, .. } if self.held >= size(*max) => {
                (Because::NoSlot { max: *max, held: self.held }, None)
            }
            Says::Rate(rate) if rate.room(self.rate(), now) == 0 => {
                (Because::RateReached, rate.next_at(self.rate()))
            }
            Says::RetryBudget(budget) if head.retries && budget.room(self.budget(), now) == 0 => {
                (Because::RetryBudgetSpent, budget.next_at(self.budget()))
            }
            Says::Breaker(breaker) => {
                let (state, held) = (self.breaker(), self.held);
                let until = breaker.open_until(state, now);
                match breaker.allowed(state) {
                    _ if until.is_some() => {
                        (Because::BreakerOpen { failures: state.failures }, until)
                    }
                    Some(allowed) if held >= size(allowed) => {
                        (Because::BreakerProbes { allowed, held }, None)
                    }
                    _ => return None,
                }
            }
            Says::Concurrency { .. } | Says::Rate(_) | Says::RetryBudget(_) => return None,
            Says::Drain | Says::Weight { .. } | Says::TurnsByKey => return None,
        };
        Some(Blocked { rule: self.rule.name.clone(), because, until })
    }

    /// One of the jobs of a head is taken.
    pub(super) fn take(&mut self, head: &Head<'_>, now: Timestamp) {
        self.held += 1;
        let state = match &self.rule.says {
            Says::Rate(rate) => RuleState::Rate(rate.take(self.rate(), now)),
            Says::RetryBudget(budget) => {
                RuleState::RetryBudget(budget.take(self.budget(), head.retries, now))
            }
            Says::Pause | Says::Drain | Says::Concurrency { .. } => return,
            Says::Weight { .. } | Says::TurnsByKey | Says::Breaker(_) => return,
        };
        self.is_changed |= self.state != Some(state);
        self.state = Some(state);
    }
}

fn size(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
