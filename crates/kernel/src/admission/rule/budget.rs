//! Retry budget: retries are bounded as a share of traffic.
//!
//! When everything fails, retries can be most of what a service does, and keep it from recovering. Each first try
//! pays in a share of one retry; each retry takes one out. A few in a minute are always allowed, so that a retry is
//! not stuck when nothing new comes. A retry that has to wait stays due, and uses nothing up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Each, Rate, RateState};
use crate::{Refusal, Timestamp};

/// How many retries there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Retries for each hundred first tries.
    pub percent: u32,
    /// Retries that are allowed in a minute whatever else happens.
    pub per_minute: u32,
}

/// What a budget remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetState {
    /// What first tries have paid in, in hundredths of a retry.
    pub credit: u32,
    /// Those that are allowed in any case.
    pub always: RateState,
}

impl Budget {
    /// The most retries that can be saved up.
    const SAVED_MAX: u32 = 1_000;

    pub(super) fn check(&self) -> Result<(), Refusal> {
        if self.percent > 1_000 {
            return Err(Refusal::invalid("percent", "must be at most 1000"));
        }
        if self.per_minute == 0 || self.per_minute > 60_000 {
            return Err(Refusal::invalid("per_minute", "must lie between 1 and 60000"));
        }
        Ok(())
    }

    fn always(&self) -> Rate {
        let per = Duration::from_secs(60);
        Rate { count: self.per_minute, per, burst: None, each: Each::Together }
    }

    /// How many retries may begin now.
    pub fn room(&self, state: BudgetState, now: Timestamp) -> usize {
        let saved = usize::try_from(state.credit / 100).unwrap_or(usize::MAX);
        saved.saturating_add(self.always().room(state.always, now))
    }

    /// When a retry may begin at the latest, if none may now.
    pub fn next_at(&self, state: BudgetState) -> Option<Timestamp> {
        self.always().next_at(state.always)
    }

    /// One more begins: a retry, or a first try.
    pub(crate) fn take(&self, state: BudgetState, is_retry: bool, now: Timestamp) -> BudgetState {
        let BudgetState { credit, always } = state;
        if !is_retry {
            let credit = credit.saturating_add(self.percent).min(Self::SAVED_MAX * 100);
            BudgetState { credit, always }
        } else if credit >= 100 {
            BudgetState { credit: credit - 100, always }
        } else {
            BudgetState { credit, always: self.always().take(always, now) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_first_tries_and_a_few_are_always_allowed() {
        let budget = Budget { percent: 10, per_minute: 60 };
        let now = Timestamp::from_micros(1_000_000_000);
        let mut state = BudgetState::default();
        assert_eq!(budget.room(state, now), 1, "one in a second, whatever happens");
        state = budget.take(state, true, now);
        assert_eq!(budget.room(state, now), 0);
        assert_eq!(budget.next_at(state), Some(now.plus(Duration::from_secs(1))));
        for _ in 0..100 {
            state = budget.take(state, false, now);
        }
        assert_eq!(budget.room(state, now), 10);
        for _ in 0..10 {
            state = budget.take(state, true, now);
        }
        assert_eq!(budget.room(state, now), 0);
    }
}
