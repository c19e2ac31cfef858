//! Turns: whoever had least for its weight is next.
//!
//! Each claim costs a tenant [`Turns::COST`] divided by its weight. A tenant that was away begins where the others
//! are, so it can neither save turns up nor be punished for earlier ones. Between two tenants that both have work,
//! neither gets ahead of its share by more than one turn, which is one job; in a claim of more than 128 slots it is a
//! sixty-fourth of them, because what concerns one tenant is written together. The same holds for the keys of a tenant
//! in a queue, where they take turns, job by job.
//!
//! Turns are remembered by whoever admits and are not stored: after a restart all are even again.

use std::collections::BTreeMap;

use crate::{Lane, Queue, TenantId};

/// Whose turn it is.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    pub(super) tenants: List<TenantId>,
    pub(super) keys: BTreeMap<(TenantId, Queue), List<Lane>>,
}

impl Turns {
    /// What one claim costs a tenant of weight 1.
    pub const COST: u64 = 1 << 20;
    /// How many turns a large claim is made of, at least.
    pub const PER_CLAIM: usize = 64;

    /// Forgets what says nothing any more, now and then.
    pub(super) fn tidy(&mut self) {
        self.tenants.tidy();
        self.keys.values_mut().for_each(List::tidy);
        if self.keys.len() > LIST_MAX {
            self.keys.clear();
        }
    }
}

/// More than this many are looked through for those that can be forgotten.
const LIST_MAX: usize = 1_024;

/// What one job costs.
fn cost(weight: u32) -> u64 {
    (Turns::COST / u64::from(weight.max(1))).max(1)
}

/// What each has had, on one scale.
#[derive(Clone, Debug)]
pub(super) struct List<K> {
    /// Where the turns are.
    at: u64,
    had: BTreeMap<K, u64>,
    /// With more than this many it is time to tidy up.
    tidy_from: usize,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self { at: 0, had: BTreeMap::new(), tidy_from: LIST_MAX }
    }
}

impl<K: Ord + Clone> List<K> {
    pub(super) fn next(&self, who: &K) -> u64 {
        self.had.get(who).copied().unwrap_or(0).max(self.at)
    }

    /// Takes a job, with which a turn begins or goes on. Where the turns are is where the last one began.
    pub(super) fn take(&mut self, who: &K, weight: u32, begins: bool) {
        let turn = self.next(who);
        if begins {
            self.at = turn;
        }
        let next = turn + cost(weight);
        match self.had.get_mut(who) {
            Some(had) => *had = next,
            None => drop(self.had.insert(who.clone(), next)),
        }
    }

    /// Takes so many jobs back. The turns go back as well, as far as those who are given theirs back: or these would have
    /// no more of it than all others.
    pub(super) fn give_back(&mut self, who: &K, weight: u32, count: usize) {
        let Some(had) = self.had.get_mut(who) else { return };
        *had = had.saturating_sub(cost(weight).saturating_mul(count as u64));
        self.at = self.at.min(*had);
    }

    fn tidy(&mut self) {
        if self.had.len() > self.tidy_from {
            let at = self.at;
            self.had.retain(|_, had| *had > at);
            self.tidy_from = LIST_MAX.max(self.had.len() * 2);
        }
    }
}
