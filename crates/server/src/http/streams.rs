//! Places of streams: each tenant has so many, and those of one are of no use to another.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use windlass_kernel::TenantId;
use windlass_store::read::Scope;

use super::problem::Problem;

/// The most streams of one tenant at once: bells and feeds together.
pub(crate) const STREAMS_MAX: usize = 1_000;

/// How many streams are open, for each tenant.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Arc<Mutex<HashMap<Option<TenantId>, usize>>>,
}

/// The place of one stream, which is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    tenant: Option<TenantId>,
    open: Arc<Mutex<HashMap<Option<TenantId>, usize>>>,
}

impl Streams {
    /// A place, if the tenant has one left.
    pub(crate) fn enter(&self, scope: &Scope) -> Result<StreamPlace, Problem> {
        let tenant = scope.tenant().cloned();
        let mut open = self.open.lock().expect("nobody panics with it");
        let count = open.entry(tenant.clone()).or_default();
        if *count >= STREAMS_MAX {
            let detail =
                format!("{STREAMS_MAX} streams of this tenant are open: close some, or share one");
            return Err(Problem { retry_after: Some(5), ..Problem::overloaded(detail) });
        }
        *count += 1;
        Ok(StreamPlace { tenant, open: self.open.clone() })
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.open.lock().expect("nobody panics with it");
        if let Some(count) = open.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_its_own_places() {
        let streams = Streams::default();
        let [a, b] = ["a", "b"].map(|name| Scope::Of(TenantId::new(name).unwrap()));
        let mut held: Vec<_> = (0..STREAMS_MAX).map(|_| streams.enter(&a).unwrap()).collect();
        assert_eq!(streams.enter(&a).unwrap_err().code, "OVERLOADED");
        let other = streams.enter(&b).unwrap();
        held.pop();
        held.push(streams.enter(&a).unwrap());
        drop((held, other));
        assert!(streams.open.lock().unwrap().is_empty(), "nothing is kept of who has left");
    }
}
