//! The budget of memory: bytes of bodies that are read and of answers that are written, for all callers together and for
//! each tenant.
//!
//! Always true here: no more is held than there is, but for one body or answer that is larger than all of it; one
//! tenant holds no more than its share, but for one that is larger than the share.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use windlass_kernel::TenantId;

/// How many bytes there are, and who holds how many.
#[derive(Debug)]
pub(crate) struct Budget {
    max: AtomicUsize,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: usize,
    tenants: HashMap<Option<TenantId>, usize>,
}

/// Bytes of the budget, which are given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    budget: Arc<Budget>,
    tenant: Option<TenantId>,
    bytes: usize,
}

impl Budget {
    /// One tenant may hold this part of all: a quarter.
    const SHARES: usize = 4;

    pub(crate) fn new(max: usize) -> Self {
        Self { max: AtomicUsize::new(max), used: Mutex::default() }
    }

    /// From now on so many. What is held stays held.
    pub(crate) fn set(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// So many bytes for a tenant, or for those who serve all of them; none, if there are not so many.
    pub(crate) fn take(self: &Arc<Self>, tenant: Option<&TenantId>, bytes: usize) -> Option<Held> {
        let mut held = Held { budget: self.clone(), tenant: tenant.cloned(), bytes: 0 };
        held.grow(bytes).then_some(held)
    }

    /// So many bytes, whether there are so many or not: for what was granted and cannot be taken back.
    pub(crate) fn take_anyway(self: &Arc<Self>, tenant: Option<&TenantId>, bytes: usize) -> Held {
        let mut held = Held { budget: self.clone(), tenant: tenant.cloned(), bytes: 0 };
        held.add(&mut self.used(), bytes);
        held
    }

    /// Is there anything left for a tenant?
    pub(crate) fn has_room(self: &Arc<Self>, tenant: Option<&TenantId>) -> bool {
        self.take(tenant, 1).is_some()
    }

    fn used(&self) -> std::sync::MutexGuard<'_, Used> {
        self.used.lock().expect("nobody panics with it")
    }
}

impl Held {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// So many more, if there are so many.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let max = self.budget.max.load(Ordering::Relaxed);
        let budget = self.budget.clone();
        let mut used = budget.used();
        let fits = |held: usize, max: usize| held == self.bytes || held + bytes <= max;
        let of_tenant = used.tenants.get(&self.tenant).copied().unwrap_or(0);
        if !fits(used.all, max) || !fits(of_tenant, max / Budget::SHARES) {
            return false;
        }
        self.add(&mut used, bytes);
        true
    }

    fn add(&mut self, used: &mut Used, bytes: usize) {
        used.all += bytes;
        if bytes > 0 {
            *used.tenants.entry(self.tenant.clone()).or_default() += bytes;
        }
        self.bytes += bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut used = self.budget.used();
        used.all -= self.bytes;
        if let Some(of_tenant) = used.tenants.get_mut(&self.tenant) {
            *of_tenant -= self.bytes;
            if *of_tenant == 0 {
                used.tenants.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tenant_fills_its_share_and_others_find_room() {
        let budget = Arc::new(Budget::new(4_000));
        let [a, b] = ["a", "b"].map(|name| TenantId::new(name).unwrap());
        let held: Vec<Held> = (0..20).filter_map(|_| budget.take(Some(&a), 100)).collect();
        assert_eq!(held.len(), 10);
        let other = budget.take(Some(&b), 900).expect("it has its own share");
        assert!(budget.take(Some(&b), 200).is_none());
        assert!(budget.take(Some(&b), 100).is_some());
        drop(held);
        assert!(budget.take(Some(&a), 1_000).is_some());
        drop(other);
        assert!(budget.used.lock().unwrap().tenants.is_empty(), "nothing is kept of who is done");
    }

    #[test]
    fn all_together_hold_no_more_than_there_is_but_for_one_that_is_larger() {
        let budget = Arc::new(Budget::new(4_000));
        let tenant = |number: u32| TenantId::new(format!("t{number}")).unwrap();
        let held: Vec<Held> =
            (0..20).filter_map(|number| budget.take(Some(&tenant(number)), 900)).collect();
        assert_eq!(held.len(), 4);
        drop(held);
        let large = budget.take(Some(&tenant(1)), 9_000).expect("it would never be served");
        assert!(budget.take(Some(&tenant(2)), 1).is_none());
        drop(large);
        assert!(budget.take(Some(&tenant(2)), 1).is_some());
    }
}
