//! How many calls a principal of a tenant may make: so many a second, and as many at once. Two tenants may have
//! principals of one name: each has its own count.

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Instant,
};

use windlass_kernel::{Principal, TenantId};

use crate::http::core::{caller::Caller, problem::Problem};

/// A principal, and the tenant whose it is; none for those who serve all.
type Who = (Option<TenantId>, Principal);

/// What each principal has left.
#[derive(Debug)]
pub(crate) struct Rates {
    per_second: AtomicU32,
    left: Mutex<HashMap<Who, (f64, Instant)>>,
}

impl Rates {
    /// The most principals that are remembered.
    const KNOWN_MAX: usize = 10_000;

    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: AtomicU32::new(per_second), left: Mutex::default() }
    }

    /// From now on so many.
    pub(crate) fn set(&self, per_second: u32) {
        self.per_second.store(per_second, Ordering::Relaxed);
    }

    /// Counts a call, or refuses it.
    pub(crate) fn check(&self, caller: &Caller) -> Result<(), Problem> {
        let per_second = f64::from(self.per_second.load(Ordering::Relaxed).max(1));
        let now = Instant::now();
        let mut left = self.left.lock().expect("nobody panics with it");
        if left.len() >= Self::KNOWN_MAX {
            left.retain(|_, (_, at)| now.duration_since(*at).as_secs() < 2);
        }
        let (tenant, name) = (caller.scope.tenant().cloned(), caller.principal.clone());
        let (tokens, at) = left.entry((tenant, name)).or_insert((per_second, now));
        let filled = *tokens + now.duration_since(*at).as_secs_f64() * per_second;
        (*tokens, *at) = (filled.min(per_second), now);
        if *tokens < 1.0 {
            let name = &caller.principal;
            let detail = format!("{name} may make {per_second} calls a second");
            return Err(Problem { retry_after: Some(1), ..Problem::too_many(detail) });
        }
        *tokens -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use windlass_kernel::token::Role;

    use super::*;

    fn caller(tenant: &str) -> Caller {
        let (principal, scope) = (Principal::new("w").unwrap(), TenantId::new(tenant).unwrap());
        Caller { principal, scope: scope.into(), role: Role::Worker, has_token: true }
    }

    #[test]
    fn principals_of_one_name_and_two_tenants_have_their_own_rates() {
        let rates = Rates::new(5);
        let [a, b] = ["a", "b"].map(caller);
        let refused = (0..1_000).filter(|_| rates.check(&a).is_err()).count();
        assert!(refused > 0, "a thousand at once are too many");
        rates.check(&b).expect("another tenant has its own");
    }
}
