//! Touched: whose things this engine has written to, for those who wait for the jobs of one tenant.
//!
//! The store's bell rings for everybody. Whoever waits for one tenant hears here, after the same commit, whether it was
//! about that tenant. A commit costs nothing while nobody listens.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use windlass_kernel::{OpKind, TenantId};
use windlass_store::{Bell, Listener, Write};

/// The bells of the tenants that somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    is_heard: AtomicBool,
    bells: Mutex<BTreeMap<TenantId, Bell>>,
}

impl Touched {
    /// Rings after each commit that wrote to this tenant's jobs or schedules.
    pub(crate) fn listen(&self, tenant: &TenantId) -> Listener {
        let mut bells = self.bells();
        bells.retain(|_, bell| bell.is_heard());
        self.is_heard.store(true, Ordering::SeqCst);
        bells.entry(tenant.clone()).or_default().listen()
    }

    /// These were committed.
    pub(crate) fn tell(&self, writes: &[Write]) {
        if !self.is_heard.load(Ordering::SeqCst) {
            return;
        }
        let mut bells = self.bells();
        let mut last = None;
        for tenant in writes.iter().filter_map(touched) {
            // Writes that come together are mostly of one tenant.
            if last != Some(tenant)
                && let Some(bell) = bells.get(tenant)
            {
                bell.ring();
            }
            last = Some(tenant);
        }
        bells.retain(|_, bell| bell.is_heard());
        self.is_heard.store(!bells.is_empty(), Ordering::SeqCst);
    }

    fn bells(&self) -> MutexGuard<'_, BTreeMap<TenantId, Bell>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whose jobs a write may have made ready.
fn touched(write: &Write) -> Option<&TenantId> {
    match write {
        Write::Op { op, .. } if matches!(op.kind(), OpKind::Start | OpKind::Renew) => None,
        Write::Op { tenant, .. } => Some(tenant),
        Write::Schedule(op) => Some(&op.tenant),
        Write::Claim(_) | Write::RenewSession { .. } | Write::FollowUpDone { .. } => None,
        Write::Rule(_) | Write::Listens { .. } | Write::Token(_) => None,
        Write::Mark { .. } | Write::Clock(_) => None,
    }
}
