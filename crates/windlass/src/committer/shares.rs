//! Shares: how much of the queue one tenant may take.
//!
//! Room is given in the order in which it is asked for. Without a share, whoever asks for much at once stands before
//! everybody who comes after. With it, a tenant that has filled its share waits for its own writes, and others find room.
//!
//! Shares are for those who wait for room. A write that names no tenant has no share: it is the engine's own, or that of a worker for all tenants.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Semaphore, SemaphorePermit};
use windlass_kernel::TenantId;
use windlass_store::Write;

use super::pending::Lane;

/// The shares of all tenants that have something waiting.
#[derive(Debug)]
pub(super) struct Shares {
    tenants: Mutex<BTreeMap<TenantId, Arc<Share>>>,
    max: u32,
}

/// What one tenant has left in each lane.
#[derive(Debug)]
pub(super) struct Share {
    lease: Semaphore,
    bulk: Semaphore,
    max: u32,
}

/// From so many tenants on those that have nothing waiting are forgotten.
const KNOWN_MAX: usize = 1_000;

impl Shares {
    /// Each tenant may take so much of each lane.
    pub(super) fn new(max: u32) -> Self {
        Self { tenants: Mutex::default(), max }
    }

    /// The share of a tenant.
    pub(super) fn of(&self, tenant: &TenantId) -> Arc<Share> {
        let mut tenants = self.tenants();
        if let Some(share) = tenants.get(tenant) {
            return share.clone();
        }
        if tenants.len() >= KNOWN_MAX {
            // Whatever waits has its share with it.
            tenants.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let room = || Semaphore::new(self.max as usize);
        let share = Arc::new(Share { lease: room(), bulk: room(), max: self.max });
        tenants.insert(tenant.clone(), share.clone());
        share
    }

    /// Nobody waits for a share any more.
    pub(super) fn close(&self) {
        for share in self.tenants().values() {
            share.lease.close();
            share.bulk.close();
        }
    }

    fn tenants(&self) -> MutexGuard<'_, BTreeMap<TenantId, Arc<Share>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Takes so much, as soon as there is so much. What costs more than there is takes all. It is given back when it is
    /// dropped, unless it is kept.
    pub(super) async fn take(&self, lane: Lane, cost: u32) -> Option<SemaphorePermit<'_>> {
        // A share that was closed is of a queue that takes nothing more, and says so.
        self.room(lane).acquire_many(self.part(cost)).await.ok()
    }

    /// Gives back what was kept for writes of these costs.
    pub(super) fn give_back(&self, lane: Lane, costs: impl Iterator<Item = u32>) {
        self.room(lane).add_permits(costs.map(|cost| self.part(cost) as usize).sum());
    }

    fn part(&self, cost: u32) -> u32 {
        cost.min(self.max)
    }

    fn room(&self, lane: Lane) -> &Semaphore {
        match lane {
            Lane::Lease => &self.lease,
            Lane::Bulk => &self.bulk,
        }
    }
}

/// Whose write it is.
pub(super) fn tenant_of(write: &Write) -> Option<&TenantId> {
    match write {
        Write::Op { tenant, .. } => Some(tenant),
        Write::Schedule(op) => Some(&op.tenant),
        Write::Claim(wanted) => wanted.tenant.as_ref(),
        Write::Listens { tenant, .. } => tenant.as_ref(),
        Write::RenewSession { .. } | Write::FollowUpDone { .. } => None,
        Write::Rule(_) | Write::Token(_) | Write::Mark { .. } | Write::Clock(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use windlass_store::read::{Listens, Word};

    use super::*;

    #[test]
    fn whatever_a_worker_says_waits_in_the_share_of_its_tenant() {
        let tenant: Option<TenantId> = Some("acme".parse().unwrap());
        for word in [Word::To(Listens::default()), Word::Still, Word::Goodbye] {
            let worker = "w1".parse().unwrap();
            let write = Write::Listens { worker, tenant: tenant.clone(), word };
            assert_eq!(tenant_of(&write), tenant.as_ref());
        }
    }
}
