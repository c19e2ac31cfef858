//! Limits: what is paused, how many may be held at once, how many may begin in a time, whose turn it is.

use std::{collections::BTreeMap, time::Duration};

use super::Head;
use crate::{Kind, Queue, TenantId, Timestamp};

/// Every limit that applies to the heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// What is paused.
    pub paused: Vec<Scope>,
    /// What is limited.
    pub limits: Vec<Limit>,
    /// Turns between tenants, if they take turns.
    pub turns: Option<Turns>,
}

/// What a limit or a pause applies to: everything that agrees with all that it names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// This queue only.
    pub queue: Option<Queue>,
    /// This tenant only.
    pub tenant: Option<TenantId>,
    /// This kind only.
    pub kind: Option<Kind>,
}

impl Scope {
    pub(super) fn covers(&self, head: &Head) -> bool {
        self.queue.as_ref().is_none_or(|queue| *queue == head.queue)
            && self.tenant.as_ref().is_none_or(|tenant| *tenant == head.tenant)
            && self.kind.as_ref().is_none_or(|kind| *kind == head.kind)
    }
}

/// A limit and how much of it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it applies to.
    pub scope: Scope,
    /// How many may be held at once.
    pub concurrency: Option<Concurrency>,
    /// How many may begin in a time.
    pub rate: Option<Rate>,
}

impl Limit {
    /// How many more may be claimed now.
    pub(super) fn room(&self, now: Timestamp) -> usize {
        let slots = self.concurrency.map_or(usize::MAX, |c| c.max.saturating_sub(c.held));
        slots.min(self.rate.map_or(usize::MAX, |rate| rate.room(now)))
    }

    pub(super) fn take(&mut self, now: Timestamp) {
        if let Some(concurrency) = &mut self.concurrency {
            concurrency.held += 1;
        }
        if let Some(rate) = &mut self.rate {
            rate.take(now);
        }
    }
}

/// How many leases there may be at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// The limit.
    pub max: usize,
    /// Leases that count against it now.
    pub held: usize,
}

/// How many jobs may be claimed in a time: a bucket that fills evenly and holds `count`.
///
/// Its whole state is one instant, so it can be kept in a row and shared by all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// This many …
    pub count: u32,
    /// … in this time.
    pub per: Duration,
    /// When the bucket is full again.
    pub full_at: Timestamp,
}

impl Rate {
    /// The time in which the bucket gains one, rounded up, so that the rate is never exceeded.
    pub(super) fn interval(&self) -> Duration {
        let micros = self.per.as_micros().div_ceil(u128::from(self.count.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX).max(1))
    }

    pub(super) fn room(&self, now: Timestamp) -> usize {
        let interval = self.interval().as_micros();
        let missing = self.full_at.since(now).as_micros().div_ceil(interval);
        usize::try_from(u128::from(self.count).saturating_sub(missing)).unwrap_or(usize::MAX)
    }

    pub(super) fn take(&mut self, now: Timestamp) {
        self.full_at = self.full_at.max(now).plus(self.interval());
    }
}

/// Turns between tenants: whoever had least for its weight is next.
///
/// Each claim costs its tenant [`Turns::COST`] divided by its weight. A tenant that was away begins
/// where the others are, so it can neither save turns up nor be punished for earlier ones. Between two
/// tenants that both have work, neither gets ahead of its share by more than one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// Where the turns are.
    pub at: u64,
    /// What each tenant has had, on the same scale.
    pub had: BTreeMap<TenantId, u64>,
    /// The weight of each tenant; 1, if nothing is said.
    pub weights: BTreeMap<TenantId, u32>,
}

impl Turns {
    /// What one claim costs a tenant of weight 1.
    pub const COST: u64 = 1 << 20;

    pub(super) fn next(&self, tenant: &TenantId) -> u64 {
        self.had.get(tenant).copied().unwrap_or(0).max(self.at)
    }

    pub(super) fn take(&mut self, tenant: &TenantId) {
        let weight = u64::from(self.weights.get(tenant).copied().unwrap_or(1).max(1));
        let turn = self.next(tenant);
        self.at = turn;
        self.had.insert(tenant.clone(), turn + (Self::COST / weight).max(1));
    }
}
